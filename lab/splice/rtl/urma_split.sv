/*
 * Scheme 3: FIFO_data and FIFO_sbd with one entry for each output packet.
 *
 * Owns: both FIFOs, the packet being written, the packet being read. Takes: joined beats. Gives: per packet
 * one header cycle with the sideband, then its beats. The entry is pushed with the last beat of its packet:
 * a header says that all its beats are there.
 */
`default_nettype none

module urma_split #(
    parameter W = 64,
    parameter D = 128,
    parameter B = 8
) (
    input  wire                clk,
    input  wire                rst,
    output wire                space,
    input  wire                abort,
    input  wire                push,
    input  wire                finish,
    input  wire [$clog2(W):0]  bytes,
    input  wire [8*W-1:0]      data,
    input  wire [31:0]         tag,
    input  wire [3:0]          mtu,
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
    output wire                out_end
);
    localparam L = $clog2(W) + 1;

    // The packet being written: its bytes, its number in the message.
    logic [13:0] cut;
    logic [31:0] index;
    wire  [13:0] length = cut + (push ? {{(14-L){1'b0}}, bytes} : 14'd0);
    wire         is_cut = finish | (push & (length == (14'd1 << mtu)));
    always_ff @(posedge clk) begin
        if (rst | abort | finish) begin
            cut <= '0;
            index <= '0;
        end else begin
            cut <= is_cut ? '0 : length;
            if (is_cut) index <= index + 32'd1;
        end
    end

    wire         data_full;
    wire         sbd_full;
    wire         sbd_empty;
    wire         unused_data_empty;
    wire         pop_sbd;
    wire         pop_data;
    wire         is_first;
    wire         is_last;
    assign space = ~data_full & ~sbd_full;

    // A beat is read two cycles after its push at the earliest, for its header comes in between.
    urma_fifo #(.WIDTH(8*W), .DEPTH(D), .PASS(0)) fifo_data (
        .clk(clk), .rst(rst), .push(push), .push_data(data), .keep(is_cut), .undo(abort),
        .pop(pop_data), .front(out_data), .is_full(data_full), .is_empty(unused_data_empty)
    );
    urma_fifo #(.WIDTH(80), .DEPTH(B)) fifo_sbd (
        .clk(clk), .rst(rst), .push(is_cut), .push_data({tag, index, length, index == '0, finish}),
        .keep(1'b1), .undo(1'b0),
        .pop(pop_sbd), .front({out_tag, out_index, out_len, is_first, is_last}),
        .is_full(sbd_full), .is_empty(sbd_empty)
    );
    assign out_first = is_first;
    assign out_last = is_last;

    urma_reader #(.W(W)) reader (
        .clk(clk), .rst(rst), .header_valid(~sbd_empty), .len(out_len), .out_ready(out_ready),
        .out_valid(out_valid), .out_header(out_header), .out_bytes(out_bytes), .out_end(out_end),
        .take_header(pop_sbd), .take_beat(pop_data)
    );
endmodule

`default_nettype wire
