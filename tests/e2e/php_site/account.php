<?php
// A page that ranks its visitor with the helper of the documentation: ?as=customer signs in with a
// rank, ?as= signs out, ?hold=1 makes the file SITE_HOLD and goes on when that is gone.

declare(strict_types=1);

require __DIR__ . '/../../../docs/helpers/corvus.php';

session_start();
session_write_close();  // PHP lets one page of a session run at a time
if (isset($_GET['hold'])) {
    $held = (string) getenv('SITE_HOLD');
    touch($held);
    for ($until = microtime(true) + 20; file_exists($held) && microtime(true) < $until; clearstatcache()) {
        usleep(10000);
    }
}
session_start();
if (($_GET['as'] ?? '') !== '') {
    $_SESSION['rank'] = $_GET['as'];
} elseif (isset($_GET['as'])) {
    unset($_SESSION['rank']);
}
$rank = explode(';', $_SESSION['rank'] ?? '')[0] ?: null;
$ttl = preg_match('/ttl=(\d+)/', $_SESSION['rank'] ?? '', $found) ? (int) $found[1] : null;
if (($_GET['how'] ?? '') === 'clear') {
    corvus_priority_clear();
} else {
    @corvus_priority($rank, $ttl);
}
header('Content-Type: application/json');
echo json_encode([
    'rank' => $_SESSION['rank'] ?? null,
    'cookies' => array_keys($_COOKIE),
    'told' => $_SERVER['HTTP_CORVUS_PRIORITY'] ?? null,
]);
