-- The line: standing in it, falling silent, coming back, and the bounded work that time makes due.
-- `queue` and `seen` have the same members; `ranked` those of them who do not stand by arrival.

-- Where somebody stands in `ranked`; nil by arrival.
local function level(v)
  if v.front > 0 then
    return v.front
  elseif cfg.order == 'rank' and v.rank > 0 then
    return (7 - v.rank) * LEVEL + v.ticket
  end
end

local function stand_by_rank(sid, v)
  local score = level(v)
  if score then
    call('ZADD', RANKED, score, sid)
    n.ranked = math.max(1, n.ranked) -- only whether there is anybody is asked
  elseif n.ranked > 0 then
    call('ZREM', RANKED, sid)
  end
end

local function stand(sid, v)
  call('ZADD', QUEUE, v.ticket, sid)
  call('ZADD', SEEN, clock, sid)
  n.queue, n.living = n.queue + 1, n.living + 1
  stand_by_rank(sid, v)
end

local function step_out(sids)
  call('ZREM', QUEUE, unpack(sids))
  call('ZREM', SEEN, unpack(sids))
  if n.ranked > 0 then
    call('ZREM', RANKED, unpack(sids))
  end
end

-- Takes somebody of the line, parked or granted from where it stands; its record is left to the caller.
local function withdraw(sid)
  local seen = call('ZSCORE', SEEN, sid)
  if seen then
    step_out({ sid })
    n.queue = n.queue - 1
    n.living = n.living - (tonumber(seen) >= cutoff() and 1 or 0)
  else
    n.parked = n.parked - call('ZREM', PARKED, sid)
    n.granted = n.granted - call('ZREM', GRANTED, sid)
  end
end

local function forget(sid, ticket, kind, reason)
  call('HDEL', VISITOR, sid)
  count(kind)
  event(kind, sid, ticket, reason or '')
end

local function lapse(sid)
  local v = record(sid)
  call('ZREM', GRANTED, sid)
  n.granted = n.granted - 1
  count('lapsed')
  v.lapses, v.told, v.extensions = v.lapses + 1, 0, 0
  local till = v.seen + cfg.return_window_ms
  if v.lapses >= LAPSES then
    return forget(sid, v.ticket, 'missed', 'lapses')
  elseif till <= clock then
    return forget(sid, v.ticket, 'missed', 'return_window')
  end
  call('ZADD', PARKED, till, sid)
  call('HSET', VISITOR, sid, pack(v))
  n.parked = n.parked + 1
  event('parked', sid, v.ticket, 'lapsed')
end

-- Moves silent waiters out of the line: `sids` with their check-ins `seen`, already known to be silent.
local function park(sids, seen)
  if #sids == 0 then
    return
  end
  step_out(sids)
  n.queue = n.queue - #sids
  local texts, parked = call('HMGET', VISITOR, unpack(sids)), {}
  for i, sid in ipairs(sids) do
    local v = unpack_record(texts[i])
    local till = math.max(tonumber(seen[i]), v.seen) + cfg.return_window_ms
    if till <= clock then
      forget(sid, v.ticket, 'missed', 'return_window')
    else
      parked[#parked + 1], parked[#parked + 2] = till, sid
      n.parked = n.parked + 1
      count('parked')
      event('parked', sid, v.ticket, 'silent')
    end
  end
  if #parked > 0 then
    call('ZADD', PARKED, unpack(parked))
  end
end

local function miss_parked(sid)
  call('ZREM', PARKED, sid)
  n.parked = n.parked - 1
  forget(sid, record(sid).ticket, 'missed', 'return_window')
end

local function due(key, upto, limit)
  return call('ZRANGEBYSCORE', key, '-inf', upto, 'LIMIT', 0, limit)
end

local function sweep()
  local left = SWEEP
  if n.active > 0 then
    local slots = due(ACTIVE, clock, left)
    for _, holder in ipairs(slots) do
      vacate(holder, 'expired')
    end
    left = left - #slots
  end
  if left > 0 and n.lane > 0 then
    local slots = due(LANE, clock, left)
    for _, holder in ipairs(slots) do
      vacate(holder, 'expired')
    end
    left = left - #slots
  end
  if left > 0 and n.lane_waiting > 0 then
    local gone = due(LANEDUE, clock, left)
    for _, holder in ipairs(gone) do
      strike_off(holder)
    end
    left = left - #gone
  end
  if left > 0 and n.granted > 0 then
    local lapsed = due(GRANTED, clock, left)
    for _, sid in ipairs(lapsed) do
      lapse(sid)
    end
    left = left - #lapsed
  end
  if left > 0 and n.queue > n.living then
    local silent = call('ZRANGEBYSCORE', SEEN, '-inf', '(' .. cutoff(), 'WITHSCORES', 'LIMIT', 0, left)
    local sids, seen = {}, {}
    for i = 1, #silent, 2 do
      sids[#sids + 1], seen[#seen + 1] = silent[i], silent[i + 1]
    end
    park(sids, seen)
    left = left - #sids
  end
  if left > 0 and n.parked > 0 then
    local gone = due(PARKED, clock, left)
    for _, sid in ipairs(gone) do
      miss_parked(sid)
    end
    left = left - #gone
  end
  if left > 0 and cfg.unit == 'requests' then
    local gone = due(SERVED, clock, left)
    if #gone > 0 then
      call('ZREM', SERVED, unpack(gone))
    end
    left = left - #gone
  end
  more = more or left <= 0
end

-- What fell due for this very visitor counts even when the bounded sweep has not come to it.
local function settle(holder, sid)
  local _, ends = slot_of(holder)
  if ends and ends <= clock then
    vacate(holder, 'expired')
  end
  local deadline = call('ZSCORE', GRANTED, sid)
  if deadline and tonumber(deadline) <= clock then
    lapse(sid)
  end
  local till = call('ZSCORE', PARKED, sid)
  if till and tonumber(till) <= clock then
    miss_parked(sid)
  end
end

-- Whether somebody of the line has been silent for so long that the place is gone; then it goes.
local function is_overdue(sid, v, seen)
  if seen < cutoff() and math.max(seen, v.seen) + cfg.return_window_ms <= clock then
    park({ sid }, { seen })
    return true
  end
end

-- Applies the check-in of who is in the line, parked or granted. Gives the record, or nil for a stranger.
local function check_in(sid, rank)
  local v = record(sid)
  if not v then
    return nil
  end
  local ranked_anew = rank and rank ~= v.rank
  v.rank = rank or v.rank
  local seen = call('ZSCORE', SEEN, sid)
  if seen then
    seen = tonumber(seen)
    if is_overdue(sid, v, seen) then
      return nil
    elseif seen < cutoff() then
      n.living = n.living + 1
      count('returned')
      event('returned', sid, v.ticket, 'unswept')
    end
    call('ZADD', SEEN, clock, sid)
    stand_by_rank(sid, v)
  elseif call('ZREM', PARKED, sid) == 1 then
    n.parked = n.parked - 1
    stand(sid, v)
    count('returned')
    event('returned', sid, v.ticket, 'parked')
  else
    v.seen, ranked_anew = clock, true
  end
  if ranked_anew then
    call('HSET', VISITOR, sid, pack(v))
  end
  return v
end
