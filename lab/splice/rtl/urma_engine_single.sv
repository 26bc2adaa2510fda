/*
 * The packet engine with scheme 2.
 *
 * Owns: splice and storage, joined; the counter of messages beyond the memory. Takes: input beats, out_ready.
 * Gives: packets. D: beats of data memory. B: sideband entries (scheme 3). H: hand-over cycles (1, 2).
 */
`default_nettype none

module urma_engine_single #(
    parameter W = 64,
    parameter D = 2048,
    parameter B = 8,
    parameter H = 3,
    parameter STOP = 0,
    parameter MTU_MAX = 13,
    parameter MTU_MIN = 8
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    output wire                in_ready,
    input  wire [8*W-1:0]      in_data,
    input  wire [$clog2(W):0]  in_len,
    input  wire                in_first,
    input  wire                in_last,
    input  wire [31:0]         in_tag,
    input  wire [3:0]          in_mtu,
    input  wire                out_ready,
    output wire                out_valid,
    output wire                out_header,
    output wire [31:0]         out_tag,
    output wire [31:0]         out_index,
    output wire [13:0]         out_len,
    output wire                out_first,
    output wire                out_last,
    output wire [8*W-1:0]      out_data,
    output wire [$clog2(W):0]  out_bytes,
    output wire                out_end,
    output wire [31:0]         err_empty_beat,
    output wire [31:0]         err_beat_too_long,
    output wire [31:0]         err_mtu_changed,
    output wire [31:0]         err_mtu_range,
    output wire [31:0]         err_first_missing,
    output logic [31:0]         too_long
);
    wire                space;
    wire                open_space;
    wire                refuse;
    wire                start;
    wire                abort;
    wire                push;
    wire                finish;
    wire [$clog2(W):0]  bytes;
    wire [8*W-1:0]      data;
    wire [31:0]         tag;
    wire [3:0]          mtu;

    urma_splice #(.W(W), .MTU_MAX(MTU_MAX), .MTU_MIN(MTU_MIN)) splice (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .in_len(in_len), .in_first(in_first), .in_last(in_last), .in_tag(in_tag), .in_mtu(in_mtu),
        .space(space), .open_space(open_space), .refuse(refuse), .start(start), .abort(abort),
        .push(push), .finish(finish), .bytes(bytes), .data(data), .tag(tag), .mtu(mtu), .err_empty_beat(err_empty_beat),
        .err_beat_too_long(err_beat_too_long), .err_mtu_changed(err_mtu_changed),
        .err_mtu_range(err_mtu_range), .err_first_missing(err_first_missing)
    );
    urma_single #(.W(W), .D(D), .H(H), .STOP(STOP)) store (
        .clk(clk), .rst(rst), .space(space), .open_space(open_space), .refuse(refuse), .start(start),
        .abort(abort), .push(push), .finish(finish), .bytes(bytes), .data(data), .tag(tag), .mtu(mtu),
        .out_ready(out_ready),
        .out_valid(out_valid), .out_header(out_header), .out_tag(out_tag), .out_index(out_index),
        .out_len(out_len), .out_first(out_first), .out_last(out_last), .out_data(out_data),
        .out_bytes(out_bytes), .out_end(out_end)
    );

    always_ff @(posedge clk) begin
        if (rst) too_long <= '0;
        else if (refuse) too_long <= too_long + 32'd1;
    end
    wire unused_parameters = B == 0;
endmodule

`default_nettype wire
