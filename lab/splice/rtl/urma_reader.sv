/*
 * Reads one packet: a header cycle, then its beats.
 *
 * Owns: the beats that are left of the open packet. Takes: a header that waits, its length. Gives: what is on
 * the output; which header and which beat is taken in this cycle.
 */
`default_nettype none

module urma_reader #(
    parameter W = 64
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                header_valid,
    input  wire [13:0]         len,
    input  wire                out_ready,
    output wire                out_valid,
    output wire                out_header,
    output wire [$clog2(W):0]  out_bytes,
    output wire                out_end,
    output wire                take_header,
    output wire                take_beat
);
    localparam L = $clog2(W) + 1;

    // Bytes that are left of the open packet; 0: no packet is open.
    logic [13:0] left;
    wire         is_open = left != '0;
    wire         is_final = left <= 14'(W);

    assign out_header = ~is_open;
    assign out_valid = is_open | header_valid;
    assign out_bytes = ~is_open ? '0 : (is_final ? left[L-1:0] : L'(W));
    assign out_end = is_open ? is_final : len == '0;
    assign take_header = header_valid & ~is_open & out_ready;
    assign take_beat = is_open & out_ready;

    always_ff @(posedge clk) begin
        if (rst) left <= '0;
        else if (take_header) left <= len;
        else if (take_beat) left <= is_final ? '0 : left - 14'(W);
    end
endmodule

`default_nettype wire
