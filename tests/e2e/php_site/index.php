<?php
require 'site.php';
$_SESSION['visitor'] ??= $_GET['visitor'] ?? '';
?>
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>A small shop</title></head>
<body><h1>Tickets</h1>
<form method="post" action="/order.php"><label>Seats <input name="seats"></label><button>Order</button></form>
</body></html>
