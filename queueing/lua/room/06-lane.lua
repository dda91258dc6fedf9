-- The lane: slots beside the room's own, for ranks and for forms, and those who wait for one.

local function lane_size()
  if cfg.capacity == 0 then
    return 0 -- the operator holds the room
  elseif cfg.priority_cap > 0 then
    return cfg.priority_cap
  end
  return math.max(1, math.floor(cfg.capacity / 4))
end

local function lane_serves(is_form)
  return not stopped() and cfg.capacity > 0 and (cfg.mode ~= 'closed' or is_form)
end

-- Gives a slot of the lane. A session leaves the line for it; a lease leaves its visitor's place alone.
local function enter_lane(w)
  local v = w.holder == w.sid and record(w.sid)
  if v then
    withdraw(w.sid)
    call('HDEL', VISITOR, w.sid)
    v.rank = w.rank
  else
    count('joined')
    v = { ticket = 0, rank = w.rank, joined = now, client = w.client }
  end
  local ends = occupy(LANE, w.holder, w.sid, v, w.network)
  count('lane')
  if w.form then
    count('forms')
  end
  event('admitted', w.holder, v.ticket, w.form and 'form' or 'lane')
  return ends
end

local function lane_waiter(holder)
  local rank, form, sid, client, network =
    string.match(call('HGET', LANEWHO, holder), '^(%d),(%d),([^,]*),([^,]*),(.*)$')
  return { holder = holder, rank = tonumber(rank), form = form == '1', sid = sid, client = client,
    network = network }
end

-- Registers who waits for the lane, or its newer rank; the order of coming stays.
local function wait_for_lane(w)
  local score = call('ZSCORE', LANEWAIT, w.holder)
  local came = score and tonumber(score) % LANE_STEP or call('HINCRBY', CONFIG, 'arrivals', 1)
  if not score then
    n.lane_waiting = n.lane_waiting + 1
  end
  call('ZADD', LANEWAIT, (6 - w.rank) * LANE_STEP + came, w.holder)
  call('ZADD', LANEDUE, clock + cfg.priority_wait_ms + LANE_GRACE_MS, w.holder)
  call('HSET', LANEWHO, w.holder,
    string.format('%d,%d,%s,%s,%s', w.rank, w.form and 1 or 0, w.sid, w.client, w.network))
end

-- Keeps free slots for who waits for them, at most as many as grants in a call. Only who takes it up is
-- admitted: a visitor whose gateway died meanwhile still has its place in the line.
local function hand_on()
  local free, given = lane_size() - n.lane, 0
  if n.lane_waiting == 0 or free <= 0 or stopped() then
    return
  end
  local most = math.min(free, PROMOTE)
  for _, holder in ipairs(call('ZRANGE', LANEWAIT, 0, (cfg.mode == 'closed' and DIRECT or most) - 1)) do
    if given < most and (cfg.mode ~= 'closed' or lane_waiter(holder).form) then
      given = given + 1
      n.lane, n.lane_waiting = n.lane + 1, n.lane_waiting - 1
      call('ZREM', LANEWAIT, holder)
      call('ZREM', LANEDUE, holder)
      call('ZADD', LANE, clock + TAKE_UP_MS, holder)
    end
  end
  more = more or (given == PROMOTE and free > given and n.lane_waiting > 0)
end

-- Lengthens a slot to its whole life; takes it up when it was kept free, from the network that is told now,
-- else from the one told when it began to wait. Gives its end.
local function lengthen(key, holder, ends, network)
  if key == LANE and is_kept_free(holder) then
    local w = lane_waiter(holder)
    w.network = network and network ~= '' and network or w.network
    vacate(holder)
    return enter_lane(w)
  end
  ends = slot_end(inside(holder), ends)
  call('ZADD', key, ends, holder)
  return ends
end
