<?php
require 'site.php';
$file = $_FILES['picture'];
tell([
    'name' => $file['name'],
    'size' => $file['size'],
    'error' => $file['error'],
    'sha256' => hash_file('sha256', $file['tmp_name']),
    'caption' => bin2hex($_POST['caption'] ?? ''),
]);
