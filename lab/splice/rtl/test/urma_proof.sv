/*
 * What every run of an engine of small width keeps, for a bounded proof by yosys-smtbmc.
 *
 * Owns: rules of the input, a scoreboard. Takes: beats, bubbles and back-pressure of every kind, chosen by the solver.
 * Gives: assertions for the properties (a) to (g) of the packet engine. Must not: look into the engine.
 *
 * One byte and one message are picked by the solver; what holds for these holds for all. The picked byte is 1 and every
 * other byte 0: an engine does not look at bytes, so that is enough to see one that is lost, doubled or out of place.
 */
`default_nettype none

module urma_proof #(
    parameter W = 4,
    parameter D = 4,
    parameter B = 2,
    parameter H = 1,
    // Longest message in bytes; cycles without progress that are a stop.
    parameter LONGEST = 20,
    parameter STILL = 6
) (
    input wire                  clk,
    input wire                  in_valid,
    input wire  [$clog2(W):0]   in_len,
    input wire                  in_last,
    input wire                  wide,
    input wire                  out_ready
);
    localparam L = $clog2(W) + 1;

    reg started = 1'b0;
    always @(posedge clk) started <= 1'b1;
    wire rst = ~started;

    wire            in_ready, out_valid, out_header, out_first, out_last, out_end;
    wire [31:0]     out_tag, out_index, too_long;
    wire [31:0]     err_empty_beat, err_beat_too_long, err_mtu_changed, err_mtu_range, err_first_missing;
    wire [13:0]     out_len;
    wire [8*W-1:0]  in_data, out_data;
    wire [L-1:0]    out_bytes;

    // The message at the input: whether it is open, its number, its MTU of 8 or 16 bytes, its bytes so far.
    reg         open = 1'b0;
    reg  [3:0]  number = 4'd0;
    reg         is_wide = 1'b0;
    reg  [7:0]  length = 8'd0;
    wire        in_first = ~open;
    wire        now_wide = open ? is_wide : wide;
    wire [3:0]  in_mtu = now_wide ? 4'd4 : 4'd3;
    wire [7:0]  length_now = (open ? length : 8'd0) + {{(8-L){1'b0}}, in_len};

    `ENGINE #(.W(W), .D(D), .B(B), .H(H), .MTU_MIN(3)) engine (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .in_len(in_len), .in_first(in_first), .in_last(in_last), .in_tag({28'd0, number}), .in_mtu(in_mtu),
        .out_ready(out_ready),
        .out_valid(out_valid), .out_header(out_header), .out_tag(out_tag), .out_index(out_index),
        .out_len(out_len), .out_first(out_first), .out_last(out_last), .out_data(out_data),
        .out_bytes(out_bytes), .out_end(out_end), .err_empty_beat(err_empty_beat),
        .err_beat_too_long(err_beat_too_long), .err_mtu_changed(err_mtu_changed),
        .err_mtu_range(err_mtu_range), .err_first_missing(err_first_missing), .too_long(too_long)
    );

    wire taken = in_valid & in_ready & ~rst;
    wire header = out_valid & out_header & out_ready & ~rst;
    wire beat = out_valid & ~out_header & out_ready & ~rst;
    wire [13:0] mtu_bytes = picked_wide ? 14'd16 : 14'd8;

    // What the solver picks: a byte of the stream, a message.
    (* anyconst *) reg [7:0] picked_byte;
    (* anyconst *) reg [3:0] picked;
    reg  [7:0]  bytes_in = 8'd0, bytes_out = 8'd0;
    reg         picked_wide = 1'b0, picked_done = 1'b0;
    reg  [7:0]  picked_length = 8'd0;
    wire [7:0]  at_in = picked_byte - bytes_in, at_out = picked_byte - bytes_out;
    wire [8*W-1:0] right_data, valid_bits;
    genvar k;
    generate
        for (k = 0; k < W; k = k + 1) begin : bytes
            assign in_data[8*k +: 8] = {7'd0, at_in == k};
            assign right_data[8*k +: 8] = {7'd0, at_out == k};
            assign valid_bits[8*k +: 8] = {8{out_bytes > k}};
        end
    endgenerate

    // The output: message and packet expected next, bytes of the open packet that are left, of the message so far.
    reg  [3:0]  next_tag = 4'd0;
    reg  [31:0] next_index = 32'd0;
    reg  [13:0] left = 14'd0;
    reg  [13:0] sum = 14'd0;
    reg  [7:0]  still = 8'd0;
    wire [13:0] sum_now = (out_first ? 14'd0 : sum) + out_len;

    always @(posedge clk) begin
        assume (in_len <= W);
        assume (in_len != 0 | (in_first & in_last));
        assume (length_now <= LONGEST);
        if (taken) begin
            open <= ~in_last;
            is_wide <= now_wide;
            length <= length_now;
            if (in_last) number <= number + 4'd1;
            bytes_in <= bytes_in + {{(8-L){1'b0}}, in_len};
            if (number == picked) begin
                picked_wide <= now_wide;
                picked_length <= length_now;
                picked_done <= in_last;
            end
        end
        if (header) begin
            left <= out_len;
            sum <= sum_now;
            next_index <= out_last ? 32'd0 : next_index + 32'd1;
            if (out_last) next_tag <= next_tag + 4'd1;
        end
        if (beat) begin
            bytes_out <= bytes_out + {{(8-L){1'b0}}, out_bytes};
            left <= left - {{(14-L){1'b0}}, out_bytes};
        end
        still <= in_valid & out_ready & ~taken & ~header & ~beat & ~rst ? still + 8'd1 : 8'd0;

        if (started) begin
            // (a), (e): bytes leave in their order, each once.
            if (beat) assert ((out_data & valid_bits) == (right_data & valid_bits));
            // (c), (g): headers count messages and packets, and a packet is of one message.
            if (header) begin
                assert (left == 0);
                assert (out_tag == {28'd0, next_tag});
                assert (out_index == next_index);
                assert (out_first == (next_index == 0));
            end
            // (b): all packets of a message but the last one have its MTU, the last one the rest.
            if (header & out_tag == {28'd0, picked}) begin
                if (out_last) begin
                    assert (picked_done & sum_now == {6'd0, picked_length});
                    assert (out_len <= mtu_bytes & (out_len != 0 | picked_length == 0));
                end else assert (out_len == mtu_bytes);
            end
            if (beat) begin
                assert (left != 0);
                assert (out_bytes == (left < W ? left : W));
                assert (out_end == (left <= W));
            end
            // (f): memory and residue hold what came and did not leave.
            assert (bytes_in - bytes_out <= D * W + W - 1);
            // (d): where a beat waits and the output is ready, something moves.
            assert (still < STILL);
            assert (err_empty_beat == 0 & err_beat_too_long == 0 & err_mtu_changed == 0 & err_mtu_range == 0);
            assert (err_first_missing == 0 & too_long == 0);
        end
    end
endmodule

`default_nettype wire
