<?php
require 'site.php';
usleep(1000 * min(2000, (int) ($_GET['ms'] ?? 100)));
tell(['slept' => true]);
