/*
 * Joins the beats of a message without gaps.
 *
 * Owns: the residue, the open message, the input errors. Takes: one input beat a cycle. Gives: full beats,
 * the last of a message excepted. Must not: know packets or how beats are stored.
 */
`default_nettype none

module urma_splice #(
    parameter W = 64,
    parameter MTU_MAX = 13,
    parameter MTU_MIN = 8
) (
    input  wire                  clk,
    input  wire                  rst,
    input  wire                  in_valid,
    output wire                  in_ready,
    input  wire  [8*W-1:0]       in_data,
    input  wire  [$clog2(W):0]   in_len,
    input  wire                  in_first,
    input  wire                  in_last,
    input  wire  [31:0]          in_tag,
    input  wire  [3:0]           in_mtu,
    // The storage: has room for a beat and the end of a packet; takes a beat that pushes nothing; both from
    // registers only. Refuses this push.
    input  wire                  space,
    input  wire                  open_space,
    input  wire                  refuse,
    // First beat of a message; the message is dropped.
    output wire                  start,
    output wire                  abort,
    // A beat of `bytes` bytes; the message ends here (with no beat if it is empty).
    output wire                  push,
    output wire                  finish,
    output wire  [$clog2(W):0]   bytes,
    output wire  [8*W-1:0]       data,
    output wire  [31:0]          tag,
    output wire  [3:0]           mtu,
    output logic [31:0]          err_empty_beat,
    output logic [31:0]          err_beat_too_long,
    output logic [31:0]          err_mtu_changed,
    output logic [31:0]          err_mtu_range,
    output logic [31:0]          err_first_missing
);
    localparam L = $clog2(W) + 1;
    localparam [L-1:0] FULL = L'(W);

    logic            open;
    logic            dropping;
    logic            flush;
    logic [L-1:0]    held;
    logic [8*W-1:0]  residue;
    logic [31:0]     tag_q;
    logic [3:0]      mtu_q;

    wire take = in_valid & in_ready & ~dropping;
    wire bad_long = in_len > FULL;
    wire bad_range = in_mtu < 4'(MTU_MIN) | in_mtu > 4'(MTU_MAX);
    wire bad_first = in_first == open;
    wire bad_change = ~in_first & (in_mtu != mtu_q | in_tag != tag_q);
    wire bad_empty = (in_len == '0) & ~(in_first & in_last);
    wire bad = bad_first | bad_empty | bad_long | bad_range | bad_change;
    wire good = take & ~bad;
    wire flushing = flush & space;

    // Bytes beyond the length are cleared, so that old and new bytes can be joined by OR.
    wire [8*W-1:0]   kept;
    wire [16*W-1:0]  joined = {{(8*W){1'b0}}, residue} | ({{(8*W){1'b0}}, kept} << {held, 3'b000});
    wire [L:0]       total = {1'b0, held} + {1'b0, in_len};
    wire             is_full = total >= {1'b0, FULL};
    wire             is_over = total > {1'b0, FULL};
    wire [L:0]       over = total - {1'b0, FULL};
    wire             unused_over = over[L];
    wire             is_empty = total == '0;
    genvar byte_index;
    generate
        for (byte_index = 0; byte_index < W; byte_index = byte_index + 1) begin : mask
            assign kept[8*byte_index +: 8] =
                in_len > L'(byte_index) ? in_data[8*byte_index +: 8] : 8'h00;
        end
    endgenerate

    wire             is_pushing = is_full | (in_last & ~is_empty);

    assign in_ready = dropping | (~flush & (space | (open_space & (bad | ~is_pushing))));
    assign start = good & ~open;
    assign push = flushing | (good & is_pushing);
    assign finish = flushing | (good & in_last & ~is_over);
    assign bytes = flush ? held : (is_full ? FULL : total[L-1:0]);
    assign data = flush ? residue : joined[8*W-1:0];
    assign tag = open | flush ? tag_q : in_tag;
    assign mtu = open | flush ? mtu_q : in_mtu;
    assign abort = (take & bad) | refuse;

    wire restart = rst | abort | finish;
    always_ff @(posedge clk) begin
        if (restart) begin
            held <= '0;
            residue <= '0;
        end else if (good) begin
            held <= is_full ? over[L-1:0] : total[L-1:0];
            residue <= is_full ? joined[16*W-1:8*W] : joined[8*W-1:0];
        end
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            open <= 1'b0;
            flush <= 1'b0;
            dropping <= 1'b0;
        end else begin
            if (in_valid & in_ready) begin
                open <= good & ~refuse & ~in_last;
                dropping <= (dropping | bad | refuse) & ~in_last;
            end
            if (good & in_last & is_over & ~refuse) flush <= 1'b1;
            else if (flushing) flush <= 1'b0;
        end
    end

    always_ff @(posedge clk) begin
        if (start) begin
            tag_q <= in_tag;
            mtu_q <= in_mtu;
        end
    end

    // One beat has one reason: the first that applies.
    always_ff @(posedge clk) begin
        if (rst) begin
            err_empty_beat <= '0;
            err_beat_too_long <= '0;
            err_mtu_changed <= '0;
            err_mtu_range <= '0;
            err_first_missing <= '0;
        end else if (take) begin
            if (bad_long) err_beat_too_long <= err_beat_too_long + 32'd1;
            else if (bad_range) err_mtu_range <= err_mtu_range + 32'd1;
            else if (bad_first) err_first_missing <= err_first_missing + 32'd1;
            else if (bad_change) err_mtu_changed <= err_mtu_changed + 32'd1;
            else if (bad_empty) err_empty_beat <= err_empty_beat + 32'd1;
        end
    end
endmodule

`default_nettype wire
