<?php
require 'site.php';
if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    http_response_code(405);
    exit;
}
$_SESSION['orders'][] = [
    'seats' => $_POST['seats'] ?? '',
    'note' => bin2hex($_POST['note'] ?? ''),
    'raw' => hash('sha256', file_get_contents('php://input')),
];
header('Location: /thanks.php?order=' . count($_SESSION['orders']), true, 303);
