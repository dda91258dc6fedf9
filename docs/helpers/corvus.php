<?php
/*
 * Tells Corvus the rank of a visitor. Copy this file into your application; it depends on nothing.
 *
 *     require 'corvus.php';
 *     session_start();
 *     corvus_priority($user ? 'customer' : null);   // or corvus_priority('checkout', 45 * 60)
 *
 * Call it before you send any output, on pages (a rank on an image or a style sheet has no effect).
 * With a session it also notices when a visitor has no rank any more and says so, once.
 */

declare(strict_types=1);

const CORVUS_RANKS = ['guest', 'member', 'prospect', 'customer', 'subscriber', 'checkout', 'staff'];

/**
 * Send the header Corvus-Priority for a ranked visitor.
 *
 * @param string|null $rank one of CORVUS_RANKS; null is the same as 'guest'
 * @param int|null    $ttl  seconds that the rank lasts, 60 to 86400; null: as docs/priority.md says
 */
function corvus_priority(?string $rank, ?int $ttl = null): void
{
    $rank = strtolower(trim($rank ?? 'guest'));
    if (!in_array($rank, CORVUS_RANKS, true)) {
        trigger_error(
            "corvus_priority: \"$rank\" is no rank; use one of " . implode(', ', CORVUS_RANKS),
            E_USER_WARNING
        );
        return;
    }
    $hasSession = session_status() === PHP_SESSION_ACTIVE;
    $told = $hasSession ? ($_SESSION['corvus_rank'] ?? '') : '';
    if ($rank === 'guest' && $told === '') {
        return;
    }
    header('Corvus-Priority: ' . $rank . ($rank !== 'guest' && $ttl !== null ? "; ttl=$ttl" : ''));
    if ($hasSession && $rank === 'guest') {
        unset($_SESSION['corvus_rank']);
    } elseif ($hasSession && $told !== $rank) {
        $_SESSION['corvus_rank'] = $rank;
    }
}

/**
 * Say that a visitor has no rank any more. Call it where you sign people out, before
 * session_destroy(), which would make the helper forget that there was a rank.
 */
function corvus_priority_clear(): void
{
    header('Corvus-Priority: guest');
    if (session_status() === PHP_SESSION_ACTIVE) {
        unset($_SESSION['corvus_rank']);
    }
}
