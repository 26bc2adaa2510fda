/*
 * Control of one message in schemes 1 and 2.
 *
 * Owns: its state, its sideband, its bytes that are not read yet. Takes: what is written to it and read from
 * it. Gives: the sideband of its next packet. Must not: know where its beats lie.
 */
`default_nettype none

module urma_buffer_ctrl #(
    parameter W = 64,
    parameter N = 24
) (
    input  wire                clk,
    input  wire                rst,
    // Writing: these are for this message only.
    input  wire                start,
    input  wire                abort,
    input  wire                push,
    input  wire                finish,
    input  wire [$clog2(W):0]  bytes,
    input  wire [31:0]         in_tag,
    input  wire [3:0]          in_mtu,
    // Reading: the header of the next packet is taken; the last beat of a packet is taken.
    input  wire                take_header,
    input  wire                take_end,
    output wire                is_idle,
    output wire                is_full,
    output wire                is_readable,
    output wire                is_freed,
    output logic [31:0]        tag,
    output logic [31:0]        index,
    output wire  [13:0]        len,
    output wire                last
);
    localparam L = $clog2(W) + 1;
    localparam [1:0] EMPTY = 2'd0, FILLING = 2'd1, FULL = 2'd2, DRAINING = 2'd3;

    logic [1:0]   state;
    logic [3:0]   mtu;
    logic [N-1:0] rest;
    wire  [N-1:0] packet = {{(N-1){1'b0}}, 1'b1} << mtu;
    wire  [13:0]  rest_low;

    assign rest_low = rest[13:0];
    assign last = rest <= packet;
    assign len = last ? rest_low : 14'd1 << mtu;
    assign is_idle = state == EMPTY;
    assign is_full = state == FULL;
    assign is_readable = state == FULL | state == DRAINING;
    // A message without bytes ends with its header; any other with a beat after which nothing is left.
    assign is_freed = take_end & (take_header | rest == '0);

    always_ff @(posedge clk) begin
        if (rst | abort) state <= EMPTY;
        else if (finish) state <= FULL;
        else if (start) state <= FILLING;
        else if (is_freed) state <= EMPTY;
        else if (take_header) state <= DRAINING;
    end

    always_ff @(posedge clk) begin
        if (start) begin
            tag <= in_tag;
            mtu <= in_mtu;
            index <= '0;
            rest <= push ? {{(N-L){1'b0}}, bytes} : '0;
        end else if (push) rest <= rest + {{(N-L){1'b0}}, bytes};
        else if (take_header) begin
            rest <= last ? '0 : rest - packet;
            index <= index + 32'd1;
        end
    end
endmodule

`default_nettype wire
