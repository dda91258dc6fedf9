-- Operations of the room as a whole, of operators, and of who was paid for.

function ops.tick()
  sweep()
  hand_on()
  promote()
  turn_flow()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, more and 1 or 0, held() and 1 or 0, n.lane,
    n.lane_waiting,
  }
end

function ops.stats()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, held() and 1 or 0, call('HGETALL', COUNTERS),
    n.lane, n.lane_waiting,
  }
end

-- ARGV 3 sid. Out of order, but never above capacity or rate.
function ops.promote()
  local sid = ARGV[3]
  sweep()
  hand_on()
  local seen = call('ZSCORE', SEEN, sid)
  if call('ZSCORE', GRANTED, sid) then
    return 'granted'
  elseif not seen or tonumber(seen) < cutoff() then
    return 'unknown'
  elseif stopped() then
    return 'stopped'
  elseif slots_free() == 0 then
    return 'full'
  elseif rate_allows(1) == 0 then
    return 'rate'
  end
  grant({ sid }, { [sid] = 'operator' })
  return 'granted'
end

-- Moves somebody who waits or is parked to the front, behind those who are there.
local function advance(sid, by)
  local v = record(sid)
  local seen = v and call('ZSCORE', SEEN, sid)
  if seat_of(sid) then
    return 'inside'
  elseif not v or (seen and is_overdue(sid, v, tonumber(seen))) then
    return 'unknown'
  elseif call('ZSCORE', GRANTED, sid) then
    return 'granted'
  end
  if v.front == 0 then
    v.front, v.by = call('HINCRBY', CONFIG, 'payments', 1), by == 'operator' and 'o' or 'p'
    call('HSET', VISITOR, sid, pack(v))
    if seen then
      stand_by_rank(sid, v)
    end
  end
  count('advanced')
  event('advanced', sid, v.ticket, by)
  return 'moved'
end

-- ARGV 3 sid  4 reason (paid, operator)  5 payment or ''  6 ms for which new places go to the front too
function ops.advance()
  local sid, payment, vip_ms = ARGV[3], ARGV[5], tonumber(ARGV[6])
  sweep()
  settle(sid, sid)
  hand_on()
  if payment ~= '' and call('EXISTS', LIMIT) == 1 then
    return 'already'
  end
  local became = advance(sid, ARGV[4])
  if became ~= 'unknown' and payment ~= '' then
    call('SET', LIMIT, became)
    if cfg.test_clock ~= 1 then
      call('PEXPIRE', LIMIT, PAYMENT_KEPT_MS)
    end
  end
  if became ~= 'unknown' and vip_ms > 0 then
    local over = due(VIP, clock, SWEEP)
    if #over > 0 then
      call('ZREM', VIP, unpack(over))
    end
    call('ZADD', VIP, 'GT', clock + vip_ms, sid)
  end
  promote()
  return became
end

local function take_out_all(kind, entry)
  sweep()
  local were = 0
  for i = 3, #ARGV do
    settle(ARGV[i], ARGV[i])
    were = were + (take_out(ARGV[i], kind, entry) and 1 or 0)
  end
  strike_off_all({ unpack(ARGV, 3) })
  hand_on()
  promote()
  return were
end

-- ARGV 3… sids
function ops.remove()
  return take_out_all('removed', 'revoke')
end

-- ARGV 3… sids
function ops.expel()
  return take_out_all('banned', 'expel')
end

-- A new epoch: whatever was issued until now is of an earlier one.
function ops.reset()
  cfg.reset_ms = math.max(now, cfg.reset_ms + 1)
  cfg.epoch = call('HINCRBY', CONFIG, 'epoch', 1)
  call('HSET', CONFIG, 'reset_ms', cfg.reset_ms)
  count('reset', n.queue + n.parked + n.granted)
  call('UNLINK', ACTIVE, GRANTED, QUEUE, SEEN, PARKED, LANE, VISITOR, INSIDE, SEQ, RATE, LANEWAIT, LANEDUE,
    LANEWHO, RANKED, SERVED)
  call('HDEL', CONFIG, 'overtake')
  count_people()
  restart_flow()
  event('reset', '', 0, 'operator')
  journal('reset', '')
  return cfg.epoch
end

-- Everyone inside loses the slot; who waits is served from now on.
function ops.release_all()
  sweep()
  local kept_free = call('HLEN', LANEWHO) - n.lane_waiting
  local were = n.active + n.lane - kept_free
  call('UNLINK', ACTIVE, INSIDE, LANE, LANEWAIT, LANEDUE, LANEWHO)
  n.active, n.lane, n.lane_waiting = 0, 0, 0
  count('released', were)
  event('release_all', '', 0, 'operator')
  journal('release_all', '')
  promote()
  return were
end
