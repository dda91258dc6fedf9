<?php
require 'site.php';
tell(['order' => (int) ($_GET['order'] ?? 0)]);
