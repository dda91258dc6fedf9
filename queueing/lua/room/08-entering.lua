-- The ways in (directly, by a ticket, by the lane) and the ways out.

local function queue_is_full()
  return cfg.max_queue > 0
    and (n.living >= cfg.max_queue or n.queue + n.parked >= 2 * cfg.max_queue)
end

-- When this client may take a new place; 0 = now.
local function wait_for_entry(c)
  local limited = not c.exempt and cfg.entries_per_minute > 0
  return limited and wait_for(LIMIT, cfg.entries_per_minute, 60000) or 0
end

local function note_entry(c)
  if not c.exempt and cfg.entries_per_minute > 0 then
    note(LIMIT, cfg.entries_per_minute, 60000)
  end
  count('joined')
end

-- Somebody without a place goes inside at once when nobody living is ahead and slot and rate allow.
local function enter_directly(c)
  if cfg.mode == 'closed' or cfg.mode == 'reject' or n.living > 0 or slots_free() == 0
    or rate_allows(1) == 0 or wait_for_entry(c) > 0 then
    return nil
  end
  note_entry(c)
  local v = { ticket = 0, rank = c.rank, joined = now, client = c.client }
  local ends = occupy(ACTIVE, c.holder, c.sid, v, c.network)
  note_admissions(1)
  count('direct')
  event('admitted', c.holder, 0, 'direct')
  return active_place(c.holder, ends, true)
end

-- A ticket for somebody without a place.
local function join_line(c)
  if cfg.mode == 'closed' then
    return place('closed')
  elseif cfg.mode == 'reject' then
    return place('rejected')
  end
  local retry = wait_for_entry(c)
  if retry > 0 then
    return place('limited', { retry = retry })
  elseif queue_is_full() then
    return place('full')
  end
  note_entry(c)
  if n.living == 0 then
    restart_flow()
  end
  local v = { ticket = call('INCR', SEQ), rank = c.rank, joined = now, lapses = 0, told = 0, extensions = 0,
    seen = 0, client = c.client, front = 0, by = '', new = true }
  if vip_until(c.sid) then
    v.front, v.by = call('HINCRBY', CONFIG, 'payments', 1), 'p'
    count('advanced')
  end
  call('HSET', VISITOR, c.sid, pack(v))
  stand(c.sid, v)
  event('joined', c.sid, v.ticket, v.front > 0 and 'vip' or '')
  return waiting_place(c.sid, v, 0)
end

-- A slot of the lane, at once or after waiting for it (then state `lane`); nil for who may not use it now.
local function enter_by_lane(c, v)
  local is_ranked, is_form = c.rank >= cfg.lane_rank, c.form and cfg.priority_forms == 1
  local by_session = is_ranked and cfg.unit ~= 'requests'
  local w = { holder = by_session and c.sid or c.lease, sid = c.sid, client = c.client, rank = c.rank,
    form = c.form, network = c.network }
  if not (is_ranked or is_form) or w.holder == '' then
    return nil
  end
  if not c.may_wait then
    strike_off(w.holder)
  end
  if not lane_serves(c.form) then
    return nil
  elseif n.lane < lane_size() and n.lane_waiting == 0 then
    return active_place(w.holder, enter_lane(w))
  elseif not c.may_wait then
    return nil
  end
  wait_for_lane(w)
  return v and waiting_place(c.sid, v, c.shown, 'lane') or place('lane')
end

-- Strikes the requests of these visitors off the lane's waiters, of those who are next to be served.
local function strike_off_all(sids)
  if n.lane_waiting == 0 then
    return
  end
  local gone = {}
  for _, sid in ipairs(sids) do
    gone[sid] = true
  end
  for _, holder in ipairs(call('ZRANGE', LANEWAIT, 0, DIRECT - 1)) do
    if gone[lane_waiter(holder).sid] then
      strike_off(holder)
    end
  end
end

-- Takes a visitor out of the room, wherever it stands. Gives whether it was there.
local function take_out(sid, kind, entry)
  local v = record(sid)
  if v then
    withdraw(sid)
    forget(sid, v.ticket, kind)
  end
  local had_slot = vacate(sid, 'released', kind)
  if had_slot or (cfg.unit == 'requests' and entry == 'expel') then
    journal(entry, sid)
  end
  return (v or had_slot) and true or false
end

-- Whether a session is in use on another network; notes the network that it is used from (WR-35).
local function is_shared(c, v)
  if cfg.share_guard ~= 1 or not v or c.network == '' then
    return false
  elseif v.network ~= '' and v.network ~= c.network and clock - v.used < 2 * cfg.refresh_ms then
    return true
  end
  v.network, v.used = c.network, clock
  call('HSET', INSIDE, c.sid, pack_inside(v))
  return false
end
