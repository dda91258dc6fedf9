<?php
// What every page of this small ticket shop shares: the session, and a diary of who was served when.

declare(strict_types=1);

session_start();
$_SESSION['pages'] = ($_SESSION['pages'] ?? 0) + 1;

function note(string $what): void
{
    $line = json_encode([
        'at' => microtime(true),
        'what' => $what,
        'page' => basename($_SERVER['SCRIPT_NAME']),
        'session' => session_id(),
        'visitor' => $_SESSION['visitor'] ?? ($_GET['visitor'] ?? ''),
        'cookies' => array_keys($_COOKIE),
    ]);
    file_put_contents(getenv('SHOP_DIARY'), $line . "\n", FILE_APPEND | LOCK_EX);
}

note('begin');
register_shutdown_function(note(...), 'end');

function tell(array $what): void
{
    header('Content-Type: application/json');
    echo json_encode($what + [
        'session' => session_id(),
        'pages' => $_SESSION['pages'],
        'visitor' => $_SESSION['visitor'] ?? '',
        'orders' => $_SESSION['orders'] ?? [],
    ]);
}
