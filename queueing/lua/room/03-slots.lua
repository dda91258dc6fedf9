-- Slots: who holds one, until when, and how one is given and freed. A holder is a sid (a session, with a record
-- in `inside`) or the lease of one request, which has none.

local function limit_of(v)
  return cfg.absolute_ttl_ms > 0 and v and v.since + cfg.absolute_ttl_ms * (1 + v.extensions)
end

-- The end of a slot that is used now: a session's by its record `v`, a lease's (which has none) sooner.
-- A pass never outlives its slot, so a slot never shrinks.
local function slot_end(v, old)
  local fresh = clock + (v and cfg.active_ttl_ms or cfg.lease_ttl_ms)
  return math.max(old or 0, math.min(fresh, limit_of(v) or fresh))
end

-- Where a holder has a slot, and until when; nil when nowhere. A slot of the lane that was handed on and not
-- taken up yet is only kept free for it.
local function slot_of(holder)
  local ends = call('ZSCORE', ACTIVE, holder)
  if ends then
    return ACTIVE, tonumber(ends)
  end
  ends = n.lane > 0 and call('ZSCORE', LANE, holder)
  if ends then
    return LANE, tonumber(ends)
  end
end

local function is_kept_free(holder)
  return n.lane > 0 and call('HEXISTS', LANEWHO, holder) == 1 and call('ZSCORE', LANE, holder)
end

-- The slot that somebody is in: not one that is kept free for it.
local function seat_of(holder)
  local key, ends = slot_of(holder)
  if key and not (key == LANE and is_kept_free(holder)) then
    return key, ends
  end
end

local function strike_off(holder)
  if n.lane_waiting > 0 and call('ZREM', LANEWAIT, holder) == 1 then
    call('ZREM', LANEDUE, holder)
    call('HDEL', LANEWHO, holder)
    n.lane_waiting = n.lane_waiting - 1
    return true
  end
end

-- Puts a slot under `holder`: the visitor's session, or a lease, which keeps no record. Gives its end.
local function occupy(key, holder, sid, v, network)
  local known
  if holder == sid then
    known = { ticket = v.ticket, rank = v.rank, joined = v.joined, since = clock, client = v.client,
      extensions = 0, network = '', used = 0 }
    if cfg.share_guard == 1 and network and network ~= '' then
      known.network, known.used = network, clock
    end
    call('HSET', INSIDE, sid, pack_inside(known))
  end
  local ends = slot_end(known)
  call('ZADD', key, ends, holder)
  strike_off(holder)
  if key == LANE then
    call('HDEL', LANEWHO, holder) -- a reset by an earlier version leaves it behind
    n.lane = n.lane + 1
  else
    n.active = n.active + 1
  end
  count('admitted')
  return ends
end

-- Frees a slot. Gives whether anybody was in it.
local function vacate(holder, kind, reason)
  if call('ZREM', ACTIVE, holder) == 1 then
    n.active = n.active - 1
  elseif n.lane > 0 and call('ZREM', LANE, holder) == 1 then
    n.lane = n.lane - 1
    if call('HDEL', LANEWHO, holder) == 1 then
      return false -- it was kept free for who has not come: nothing to undo
    end
  else
    return false
  end
  local v = inside(holder)
  if v then
    call('HDEL', INSIDE, holder)
  end
  count(kind)
  event(kind, holder, v and v.ticket or 0, reason or '')
  return true
end
