-- Wireshark dissector for URMA packets: BTH opcodes 0xC0 to 0xCF with TVer 1, on UDP port 4791.
--
-- Owns: the headers of docs/wire-spec.md, sections 2 to 8, under the filter names urma.*, and of section 13 (in-network
-- computing) under inc.*. Everything else on the port goes on to Wireshark's own dissector of RoCEv2.
-- Use: tshark -X lua_script:urma.lua -r FILE, or copy the file into Wireshark's plugin folder.
-- Tested by ubcore-sim/packet/tests/tshark.rs and inc/tests/tshark.rs: every field equals what those crates decode.

local PORT = 4791
local BTH, ICRC = 12, 4

local urma = Proto("urma", "Unified Remote Memory Access")
local infiniband = DissectorTable.get("udp.port"):get_dissector(PORT)

local OPCODES = {
  [0xc0] = "DataReq", [0xc1] = "DataResp", [0xc2] = "Ack", [0xc3] = "Nak", [0xc4] = "Connect",
  [0xc5] = "Accept", [0xc6] = "Refuse", [0xc7] = "Close", [0xc8] = "UmSend", [0xc9] = "Challenge",
  [0xca] = "Probe", [0xcb] = "ProbeEcho", [0xcc] = "DataPack", [0xcd] = "Losses",
  [0xce] = "Tail", [0xcf] = "Repair",
}
local TA_OPCODES = {
  [0x00] = "Send", [0x01] = "SendImm", [0x02] = "SendInvalidate", [0x03] = "Write",
  [0x04] = "WriteImm", [0x05] = "WriteNotify", [0x06] = "Read", [0x07] = "CompareSwap",
  [0x08] = "Swap", [0x09] = "AtomicStore", [0x0a] = "AtomicLoad", [0x0b] = "FetchAdd",
  [0x0c] = "FetchSub", [0x0d] = "FetchAnd", [0x0e] = "FetchOr", [0x0f] = "FetchXor",
  [0x11] = "TaAck", [0x12] = "ReadResponse", [0x13] = "AtomicResponse",
  [0x19] = "WriteAtomicAdd", [0x1a] = "FlushDma",
}
local ORDERS = { [0] = "none", [1] = "relaxed", [2] = "strong" }
local INITIATORS = { [0] = "JFS", [1] = "jetty" }
local TARGETS = { [0] = "JFR", [1] = "jetty", [2] = "jetty group" }
local STATES = { [0] = "done", [1] = "not ready", [2] = "out of sequence", [3] = "refused",
  [4] = "failed", [5] = "access", [6] = "poisoned" }
local MTUS = { [0] = "256", [1] = "512", [2] = "1024", [3] = "2048", [4] = "4096", [5] = "8192" }
local PURPOSES = { [0] = "open", [1] = "verify" }
local REFUSALS = { [1] = "Version", [2] = "UnknownEid", [3] = "Resources", [4] = "Parameters",
  [5] = "Policy", [6] = "NoTp" }
local CLOSES = { [1] = "Shutdown", [2] = "Idle", [3] = "UnknownTp", [4] = "Protocol",
  [5] = "Replaced", [6] = "Timeout" }

-- Fields of a header: name, offset, bytes, kind, title, names of values, mask. The order is that
-- of the bytes. Kinds: n number, h number in hexadecimal, b bytes, e EID, f flag.
local HEADERS = {
  bth = { "BTH", 12, {
    { "opcode", 0, 1, "h", "Opcode", OPCODES }, { "pad", 1, 1, "n", "Pad", nil, 0x30 },
    { "tver", 1, 1, "n", "TVer", nil, 0x0f }, { "pkey", 2, 2, "h", "PKEY" },
    { "fecn", 4, 1, "f", "FECN", nil, 0x80 }, { "becn", 4, 1, "f", "BECN", nil, 0x40 },
    { "dest", 5, 3, "h", "TPN at the receiver" },
    { "ack_req", 8, 1, "f", "AckReq", nil, 0x80 },
    { "repeated", 8, 1, "f", "Repeated", nil, 0x40 }, { "psn", 9, 3, "h", "PSN" } } },
  btah = { "BTAH", 16, {
    { "opcode", 0, 1, "h", "TAOpcode", TA_OPCODES }, { "taver", 1, 1, "n", "TAver", nil, 0xc0 },
    { "tv_en", 1, 1, "f", "TV_EN", nil, 0x08 },
    { "target_hint", 1, 1, "f", "Target_Hint", nil, 0x02 },
    { "ud", 1, 1, "f", "UD", nil, 0x01 }, { "tassn", 2, 2, "h", "INI_TASSN" },
    { "no_taack", 4, 1, "f", "No_TAACK", nil, 0x80 },
    { "completion_order", 4, 1, "f", "ODR[2]", nil, 0x40 },
    { "order", 4, 1, "n", "ODR[1:0]", ORDERS, 0x30 }, { "mt_en", 4, 1, "f", "MT_EN", nil, 0x08 },
    { "fence", 4, 1, "f", "FCE", nil, 0x04 }, { "retry", 4, 1, "f", "Retry", nil, 0x02 },
    { "initiator_type", 5, 1, "n", "INI_RC_Type", INITIATORS, 0x60 },
    { "initiator", 8, 3, "h", "INI_RC_ID" }, { "last", 11, 1, "f", "LAST", nil, 0x80 },
    { "first", 11, 1, "f", "FIRST", nil, 0x40 },
    { "solicited", 11, 1, "f", "SE", nil, 0x20 } } },
  atah = { "ATAH", 16, {
    { "opcode", 0, 1, "h", "TAOpcode", TA_OPCODES }, { "taver", 1, 1, "n", "TAver", nil, 0xc0 },
    { "tassn", 2, 2, "h", "INI_TASSN" }, { "rspst", 4, 1, "n", "RSPST", STATES, 0xe0 },
    { "rspinfo", 4, 1, "n", "RSPINFO", nil, 0x1f },
    { "initiator_type", 5, 1, "n", "INI_RC_Type", INITIATORS, 0x60 },
    { "expected", 6, 2, "h", "Expected or Earlier" }, { "initiator", 8, 3, "h", "INI_RC_ID" },
    { "mt_en", 11, 1, "f", "MT_EN", nil, 0x08 } } },
  mtetah = { "MTETAH", 4, {
    { "hint", 0, 1, "n", "Hint" }, { "type", 1, 1, "n", "TGT_TC_Type", TARGETS, 0xc0 },
    { "target", 1, 3, "h", "TGT_TC_ID", nil, 0x0fffff } } },
  maetah = { "MAETAH", 16, {
    { "address", 0, 8, "h", "Address" }, { "token_id", 8, 4, "h", "TokenID" },
    { "length", 12, 4, "n", "Length" } } },
  tvetah = { "TVETAH", 4, { { "token", 0, 4, "h", "TokenValue" } } },
  immeth = { "IMMETH", 8, { { "imm", 0, 8, "h", "Immediate" } } },
  wimmeth = { "WIMMETH", 16, {
    { "imm", 0, 8, "h", "Immediate" }, { "tt_en", 8, 1, "f", "TT_EN", nil, 0x80 },
    { "token", 12, 4, "h", "TokenValue of the queue" } } },
  inveth = { "INVETH", 8, {
    { "token_id", 0, 4, "h", "TokenID" }, { "token", 4, 4, "h", "TokenValue" } } },
  notifyeth = { "NOTIFYETH", 24, {
    { "address", 0, 8, "h", "Address" }, { "token_id", 8, 4, "h", "TokenID" },
    { "token", 12, 4, "h", "TokenValue" }, { "data", 16, 8, "h", "Data" } } },
  atometh = { "ATOMETH", 24, {
    { "size", 0, 1, "n", "Size" }, { "operand", 8, 8, "b", "Operand" },
    { "compare", 16, 8, "b", "Compare" } } },
  atometh16 = { "ATOMETH", 40, {
    { "size", 0, 1, "n", "Size" }, { "operand", 8, 16, "b", "Operand" },
    { "compare", 24, 16, "b", "Compare" } } },
  aveth = { "AVETH", 16, { { "size", 0, 1, "n", "Size" }, { "value", 8, 8, "b", "Value" } } },
  aveth16 = { "AVETH", 24, { { "size", 0, 1, "n", "Size" }, { "value", 8, 16, "b", "Value" } } },
  rdetah = { "RDETAH", 8, {
    { "offset", 0, 4, "n", "Offset" }, { "length", 4, 4, "n", "Length of the read" } } },
  tpaeth = { "TPAETH", 8, {
    { "words", 0, 1, "n", "Words" }, { "ce", 1, 1, "f", "CE", nil, 0x80 },
    { "window", 2, 2, "n", "Window" }, { "trigger", 5, 3, "h", "Trigger" } } },
  sack = { "SACK", 8, { { "received", 0, 8, "h", "Received" } } },
  tpceth = { "TPCETH", 152, {
    { "version_min", 0, 1, "n", "Version min" }, { "version_max", 1, 1, "n", "Version max" },
    { "mtu", 2, 1, "n", "MTU code", MTUS }, { "purpose", 3, 1, "n", "Purpose", PURPOSES },
    { "strategies", 4, 4, "h", "Strategies" }, { "incarnation", 8, 8, "h", "Incarnation" },
    { "source_eid", 16, 16, "e", "Source EID" }, { "dest_eid", 32, 16, "e", "Destination EID" },
    { "tpn", 48, 4, "h", "TPN" }, { "first_psn", 52, 4, "h", "First PSN" },
    { "window", 56, 4, "n", "Window" }, { "source_uasid", 60, 4, "n", "Source UASID" },
    { "dest_uasid", 64, 4, "n", "Destination UASID" }, { "state", 68, 4, "h", "State" },
    { "nonce", 72, 8, "h", "Nonce" }, { "close_key", 80, 8, "h", "Close key" },
    { "cookie", 88, 16, "b", "Cookie" }, { "port1", 104, 16, "e", "Further address" },
    { "port2", 120, 16, "e", "Further address" }, { "port3", 136, 16, "e", "Further address" } } },
  tpketh = { "TPKETH", 24, {
    { "nonce", 0, 8, "h", "Nonce" }, { "cookie", 8, 16, "b", "Cookie" } } },
  tpreth = { "TPRETH", 16, {
    { "reason", 0, 1, "n", "Reason", REFUSALS }, { "version_min", 1, 1, "n", "Version min" },
    { "version_max", 2, 1, "n", "Version max" }, { "state", 4, 4, "h", "State" },
    { "nonce", 8, 8, "h", "Nonce" } } },
  tpxeth = { "TPXETH", 16, {
    { "reason", 0, 1, "n", "Reason", CLOSES }, { "tpn", 4, 4, "h", "TPN" },
    { "key", 8, 8, "h", "Key" } } },
  tppeth = { "TPPETH", 16, {
    { "nonce", 0, 8, "h", "Nonce" }, { "size", 8, 2, "n", "Size" } } },
  repeth = { "REPETH", 4, {
    { "tier", 0, 1, "n", "Tier" }, { "ticket", 1, 3, "h", "Ticket" } } },
  tpleth = { "TPLETH", 8, {
    { "runs", 0, 1, "n", "Runs" }, { "tier", 1, 1, "n", "Tier" },
    { "ticket", 4, 4, "h", "Ticket" } } },
  run = { "RUN", 8, { { "start", 0, 4, "h", "First PSN" }, { "count", 4, 4, "n", "Count" } } },
  tpteth = { "TPTETH", 12, {
    { "first_end", 0, 4, "h", "First losses answered before" },
    { "ticket_end", 4, 4, "h", "Tickets answered before" },
    { "rtt", 8, 4, "n", "Round-trip time in ns" } } },
  tpfeth = { "TPFETH", 12, {
    { "last", 0, 2, "n", "Last packet of the range" }, { "begin", 2, 2, "n", "First covered" },
    { "groups", 4, 2, "n", "Groups" }, { "group", 6, 2, "n", "Group" },
    { "number", 8, 1, "n", "Number in the group" } } },
  pketh = { "PKETH", 4, { { "length", 0, 2, "n", "Length" } } },
  umeth = { "UMETH", 40, {
    { "source_eid", 0, 16, "e", "Source EID" }, { "dest_eid", 16, 16, "e", "Destination EID" },
    { "source_uasid", 32, 4, "n", "Source UASID" },
    { "dest_uasid", 36, 4, "n", "Destination UASID" } } },
}

-- Wireshark's fields by filter name. Headers with two lengths share theirs.
local fields = {}

local function make_field(name, row)
  local _, _, bytes, kind, title, values, mask = table.unpack(row, 1, 7)
  if kind == "f" then
    return ProtoField.bool(name, title, 8, nil, mask)
  elseif kind == "b" then
    return ProtoField.bytes(name, title)
  elseif kind == "e" then
    return ProtoField.ipv6(name, title)
  end
  local of_size = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [3] = ProtoField.uint24,
    [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
  local shown = base.DEC
  if kind == "h" then shown = base.HEX end
  return of_size[bytes](name, title, shown, values, mask)
end

for header, description in pairs(HEADERS) do
  for _, row in ipairs(description[3]) do
    local name = "urma." .. header:gsub("16$", "") .. "." .. row[1]
    if fields[name] == nil then
      fields[name] = make_field(name, row)
    end
  end
end
fields["urma.payload"] = ProtoField.bytes("urma.payload", "Payload")
fields["urma.pad"] = ProtoField.bytes("urma.pad", "Pad")
fields["urma.icrc"] = ProtoField.uint32("urma.icrc", "ICRC", base.HEX)

local listed = {}
for _, field in pairs(fields) do
  listed[#listed + 1] = field
end
urma.fields = listed

local too_short = ProtoExpert.new("urma.truncated", "Packet is shorter than its headers",
  expert.group.MALFORMED, expert.severity.ERROR)
local not_known = ProtoExpert.new("urma.unknown", "Opcode is not in the tables",
  expert.group.UNDECODED, expert.severity.WARN)
urma.experts = { too_short, not_known }

-- Adds a header and moves on; its bytes, or nil when the packet ends before.
local function take(packet, header)
  local title, length, rows = table.unpack(HEADERS[header])
  if packet.at + length > packet.finish then
    packet.tree:add_proto_expert_info(too_short, title .. " is cut off")
    packet.is_broken = true
    return nil
  end
  local bytes = packet.tvb:range(packet.at, length)
  local branch = packet.tree:add(bytes, title)
  for _, row in ipairs(rows) do
    local name = "urma." .. header:gsub("16$", "") .. "." .. row[1]
    branch:add(fields[name], bytes:range(row[2], row[3]))
  end
  packet.at = packet.at + length
  return bytes
end

-- Headers between transaction header and payload, by TAOpcode.
local EXTENSIONS = { [0x01] = "immeth", [0x02] = "inveth", [0x04] = "wimmeth",
  [0x05] = "notifyeth", [0x12] = "rdetah", [0x19] = "notifyeth" }

local function take_extension(packet, opcode, is_request)
  local extension = EXTENSIONS[opcode]
  if is_request and opcode >= 0x07 and opcode <= 0x0f then
    extension = "atometh"
  elseif not is_request and opcode == 0x13 then
    extension = "aveth"
  end
  if extension == "atometh" or extension == "aveth" then
    -- The first byte says how long operands are.
    if packet.at < packet.finish and packet.tvb:range(packet.at, 1):uint() == 16 then
      extension = extension .. "16"
    end
  end
  if extension ~= nil then
    take(packet, extension)
  end
end

local function take_request(packet)
  local btah = take(packet, "btah")
  if btah == nil then return nil end
  local opcode = btah:range(0, 1):uint()
  if btah:range(4, 1):bitfield(4) == 1 then take(packet, "mtetah") end
  if not packet.is_broken then take(packet, "maetah") end
  if not packet.is_broken and btah:range(1, 1):bitfield(4) == 1 then take(packet, "tvetah") end
  if not packet.is_broken then take_extension(packet, opcode, true) end
  return opcode
end

local function take_response(packet)
  local atah = take(packet, "atah")
  if atah == nil then return nil end
  local opcode = atah:range(0, 1):uint()
  if atah:range(11, 1):bitfield(4) == 1 then take(packet, "mtetah") end
  if not packet.is_broken then take_extension(packet, opcode, false) end
  return opcode
end

local function take_ack(packet)
  local tpaeth = take(packet, "tpaeth")
  if tpaeth == nil then return end
  for _ = 1, tpaeth:range(0, 1):uint() do
    if packet.is_broken then return end
    take(packet, "sack")
  end
end

local function take_losses(packet)
  local tpleth = take(packet, "tpleth")
  if tpleth == nil then return end
  for _ = 1, tpleth:range(0, 1):uint() do
    if packet.is_broken then return end
    take(packet, "run")
  end
end

local function add_payload(packet, bytes, pad)
  if bytes > 0 then
    packet.tree:add(fields["urma.payload"], packet.tvb:range(packet.at, bytes))
  end
  if pad > 0 then
    packet.tree:add(fields["urma.pad"], packet.tvb:range(packet.at + bytes, pad))
  end
  packet.at = packet.at + bytes + pad
end

-- Entries of a pack: each a request or a response with its payload and pad.
local function take_entries(packet)
  local finish = packet.finish
  while packet.at < finish and not packet.is_broken do
    local pketh = take(packet, "pketh")
    if pketh == nil then return end
    local length = pketh:range(0, 2):uint()
    local pad = -length % 4
    if length == 0 or packet.at + length + pad > finish then
      packet.tree:add_proto_expert_info(too_short, "entry is longer than the rest")
      packet.is_broken = true
      return
    end
    packet.finish = packet.at + length
    local opcode = packet.tvb:range(packet.at, 1):uint()
    if opcode >= 0x11 and opcode <= 0x13 then take_response(packet) else take_request(packet) end
    if not packet.is_broken then add_payload(packet, packet.finish - packet.at, pad) end
    packet.finish = finish
  end
end

-- What follows the BTH; the TAOpcode where there is one.
local BODIES = {
  [0xc0] = take_request,
  [0xc1] = take_response,
  [0xc2] = take_ack,
  [0xc3] = take_ack,
  [0xc4] = function(packet) take(packet, "tpceth") end,
  [0xc5] = function(packet) take(packet, "tpceth") end,
  [0xc6] = function(packet) take(packet, "tpreth") end,
  [0xc7] = function(packet) take(packet, "tpxeth") end,
  [0xc8] = function(packet)
    if take(packet, "umeth") == nil then return nil end
    return take_request(packet)
  end,
  [0xc9] = function(packet) take(packet, "tpketh") end,
  [0xca] = function(packet) take(packet, "tppeth") end,
  [0xcb] = function(packet) take(packet, "tppeth") end,
  [0xcc] = take_entries,
  [0xcd] = take_losses,
  [0xce] = function(packet) take(packet, "tpteth") end,
  [0xcf] = function(packet) take(packet, "tpfeth") end,
}

local function add_rest(packet, pad)
  local payload = packet.finish - packet.at - pad
  if payload < 0 then
    packet.tree:add_proto_expert_info(too_short, "pad is longer than the rest")
    return
  end
  add_payload(packet, payload, pad)
end

-- In-network computing: the header behind the standard headers of the first packet of a message.
local inc = Proto("inc", "In-network computing")
local INC_LENGTH = 16
local INC_KINDS = { [1] = "contribution", [2] = "result", [3] = "release", [4] = "abort" }
local INC_COLLECTIVES = { [0] = "allreduce", [1] = "reduce", [2] = "broadcast", [3] = "barrier" }
local INC_OPERATORS = { [0] = "none", [1] = "SUM", [2] = "PROD", [3] = "MIN", [4] = "MAX",
  [5] = "LAND", [6] = "LOR", [7] = "LXOR", [8] = "BAND", [9] = "BOR", [10] = "BXOR",
  [11] = "MINLOC", [12] = "MAXLOC" }
local INC_TYPES = { [0] = "none", [1] = "I8", [2] = "I16", [3] = "I32", [4] = "I64", [5] = "U8",
  [6] = "U16", [7] = "U32", [8] = "U64", [9] = "F16", [10] = "BF16", [11] = "F32", [12] = "F64",
  [16] = "I32_I32", [17] = "I64_I32", [18] = "F32_I32", [19] = "F64_I32" }
local INC_REASONS = { [1] = "member dead", [2] = "contradiction", [3] = "quota",
  [4] = "edge dead", [5] = "shut down", [6] = "protocol" }
local inc_fields = {
  version = ProtoField.uint8("inc.version", "Version", base.DEC, nil, 0xf0),
  kind = ProtoField.uint8("inc.kind", "Kind", base.DEC, INC_KINDS, 0x0f),
  collective = ProtoField.uint8("inc.collective", "Collective", base.DEC, INC_COLLECTIVES, 0xf0),
  is_repeat = ProtoField.bool("inc.repeat", "REPEAT", 8, nil, 0x01),
  is_last = ProtoField.bool("inc.last", "LAST", 8, nil, 0x02),
  operator = ProtoField.uint8("inc.operator", "Operator", base.DEC, INC_OPERATORS),
  element = ProtoField.uint8("inc.type", "Type", base.DEC, INC_TYPES),
  seq = ProtoField.uint32("inc.seq", "Seq", base.DEC),
  epoch = ProtoField.uint16("inc.epoch", "Epoch", base.DEC),
  count = ProtoField.uint16("inc.count", "Count", base.DEC),
  op_id = ProtoField.uint16("inc.op_id", "OpId", base.DEC),
  root = ProtoField.uint16("inc.root", "Root", base.DEC),
  reason = ProtoField.uint16("inc.reason", "Reason", base.DEC, INC_REASONS),
  data = ProtoField.bytes("inc.data", "Data"),
}
local inc_listed = {}
for _, field in pairs(inc_fields) do
  inc_listed[#inc_listed + 1] = field
end
inc.fields = inc_listed

-- Bytes of RETH and ImmDt before the INC header, by the opcode without its transport; whether there is an ImmDt.
local INC_OPCODES = { [0x00] = { 0, false }, [0x05] = { 4, true }, [0x06] = { 16, false },
  [0x0b] = { 20, true } }

-- Where the INC header begins; nil: this is none. A message of one packet names its chunk twice.
local function inc_start(tvb)
  if tvb:len() < BTH + INC_LENGTH + ICRC then return nil end
  local opcode = tvb:range(0, 1):uint()
  local row = INC_OPCODES[opcode % 0x20]
  if row == nil or opcode >= 0x40 then return nil end
  local start = BTH + row[1]
  if tvb:len() < start + INC_LENGTH + ICRC then return nil end
  local byte = function(at) return tvb:range(start + at, 1):uint() end
  local is_header = math.floor(byte(0) / 16) == 1 and INC_KINDS[byte(0) % 16] ~= nil
    and INC_COLLECTIVES[math.floor(byte(1) / 16)] ~= nil and byte(1) % 16 < 4
    and INC_OPERATORS[byte(2)] ~= nil and INC_TYPES[byte(3)] ~= nil
  if not is_header then return nil end
  if row[2] and tvb:range(start - 4, 4):uint() ~= tvb:range(start + 4, 4):uint() then return nil end
  return start
end

local function add_inc(tvb, pinfo, tree)
  local start = inc_start(tvb)
  if start == nil then return end
  local finish = tvb:len() - ICRC - tvb:range(1, 1):bitfield(2, 2)
  local branch = tree:add(inc, tvb:range(start, finish - start))
  local at = function(offset, length) return tvb:range(start + offset, length) end
  local kind = at(0, 1):bitfield(4, 4)
  branch:add(inc_fields.version, at(0, 1))
  branch:add(inc_fields.kind, at(0, 1))
  branch:add(inc_fields.collective, at(1, 1))
  branch:add(inc_fields.is_repeat, at(1, 1))
  branch:add(inc_fields.is_last, at(1, 1))
  branch:add(inc_fields.operator, at(2, 1))
  branch:add(inc_fields.element, at(3, 1))
  branch:add(inc_fields.seq, at(4, 4))
  branch:add(inc_fields.epoch, at(8, 2))
  branch:add(inc_fields.count, at(10, 2))
  branch:add(inc_fields.op_id, at(12, 2))
  if kind == 4 then
    branch:add(inc_fields.reason, at(14, 2))
  else
    branch:add(inc_fields.root, at(14, 2))
  end
  if finish > start + INC_LENGTH then
    branch:add(inc_fields.data, tvb:range(start + INC_LENGTH, finish - start - INC_LENGTH))
  end
  pinfo.cols.info:append(string.format(" INC %s Seq=%u", INC_KINDS[kind], at(4, 4):uint()))
end

local function is_ours(tvb)
  return tvb:len() >= BTH + ICRC and tvb:range(0, 1):uint() >= 0xc0
    and tvb:range(1, 1):bitfield(4, 4) == 1
end

function urma.dissector(tvb, pinfo, tree)
  if not is_ours(tvb) then
    local taken = infiniband:call(tvb, pinfo, tree)
    add_inc(tvb, pinfo, tree)
    return taken
  end
  local length = tvb:len()
  local opcode = tvb:range(0, 1):uint()
  pinfo.cols.protocol = "URMA"
  local branch = tree:add(urma, tvb:range())
  local packet = { tvb = tvb, tree = branch, at = 0, finish = length - ICRC, is_broken = false }
  local bth = take(packet, "bth")
  if bth:range(8, 1):bitfield(1) == 1 then take(packet, "repeth") end
  local body = BODIES[opcode]
  local info = OPCODES[opcode] or string.format("opcode 0x%02x", opcode)
  if packet.is_broken then
    body = function() return nil end
  end
  if body == nil then
    branch:add_proto_expert_info(not_known)
  else
    local operation = body(packet)
    if operation ~= nil then
      info = info .. " " .. (TA_OPCODES[operation] or string.format("0x%02x", operation))
    end
  end
  pinfo.cols.info = string.format("%s TPN=0x%06x PSN=0x%06x", info, bth:range(5, 3):uint(),
    bth:range(9, 3):uint())
  if not packet.is_broken then
    add_rest(packet, bth:range(1, 1):bitfield(2, 2))
  end
  branch:add_le(fields["urma.icrc"], tvb:range(length - ICRC, ICRC))
  return length
end

DissectorTable.get("udp.port"):add(PORT, urma)
