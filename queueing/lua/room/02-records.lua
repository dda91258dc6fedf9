-- What is kept of a visitor and of a session, and the lists that limit how often something happens.
-- Records are text, so that an operator can read them. What a later version added stands at the end, where an
-- earlier one takes it for a part of the client's address and keeps it.

-- `front`: the order of payment, 0 = not in front; `by`: who said so, p (paid) or o (operator).
local function pack(v)
  return string.format('%.0f,%d,%.0f,%d,%d,%d,%.0f,%s,%.0f,%s',
    v.ticket, v.rank, v.joined, v.lapses, v.told, v.extensions, v.seen, v.client, v.front, v.by)
end

local function unpack_record(text)
  local ticket, rank, joined, lapses, told, extensions, seen, client, rest =
    string.match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),([^,]*),?(.*)$')
  local front, by = string.match(rest, '^(%d+),(%a?)$')
  return {
    ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), lapses = tonumber(lapses),
    told = tonumber(told), extensions = tonumber(extensions), seen = tonumber(seen), client = client,
    front = tonumber(front or 0), by = by or '',
  }
end

local function record(sid)
  local text = call('HGET', VISITOR, sid)
  return text and unpack_record(text)
end

-- `extensions` of the absolute limit; `network` from which the pass was used last, and when.
local function pack_inside(v)
  return string.format('%.0f,%d,%.0f,%.0f,%s,%d,%s,%.0f',
    v.ticket, v.rank, v.joined, v.since, v.client, v.extensions, v.network, v.used)
end

local function inside(sid)
  local text = call('HGET', INSIDE, sid)
  if not text then
    return nil
  end
  local ticket, rank, joined, since, client, rest =
    string.match(text, '^(%d+),(%d+),(%d+),(%d+),([^,]*),?(.*)$')
  local extensions, network, used = string.match(rest, '^(%d+),([^,]*),(%d+)$')
  return { ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), since = tonumber(since),
    client = client, extensions = tonumber(extensions or 0), network = network or '', used = tonumber(used or 0) }
end

-- Sliding limits: no window of `window` ms holds more than `limit` -----------------------------------

local function wait_for(key, limit, window)
  local oldest = call('LINDEX', key, limit - 1)
  if not oldest then
    return 0
  end
  return math.max(0, tonumber(oldest) + window - clock)
end

local function note(key, limit, ttl)
  call('LPUSH', key, clock)
  call('LTRIM', key, 0, limit - 1)
  if ttl and cfg.test_clock ~= 1 then -- the store's own clock expires keys: not under a test's clock
    call('PEXPIRE', key, ttl)
  end
end
