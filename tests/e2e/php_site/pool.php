<?php
// A page that cannot bear more than four of itself at once: above that it fails, as a site does whose
// pool of database connections is empty. POOL_COUNT names the file with how many there are and the most there
// were. The page leaves before it answers, so that nobody is counted after the answer is out.

declare(strict_types=1);

function count_me(int $by): int
{
    $file = fopen(getenv('POOL_COUNT'), 'c+');
    flock($file, LOCK_EX);
    [$inside, $most, $served, $failed] = array_map('intval', explode(' ', fgets($file) ?: '0 0 0 0'));
    $inside += $by;
    $most = max($most, $inside);
    $served += $by < 0 ? 1 : 0;
    $failed += $inside > 4 && $by > 0 ? 1 : 0;
    rewind($file);
    fwrite($file, "$inside $most $served $failed    \n");
    fclose($file);
    return $inside;
}

$inside = count_me(+1);
usleep(1000 * min(5000, (int) ($_GET['ms'] ?? 30)));
count_me(-1);
if ($inside > 4) {
    http_response_code(500);
}
header('Content-Type: application/json');
echo json_encode(['served' => $_GET['visitor'] ?? '', 'inside' => $inside]);
