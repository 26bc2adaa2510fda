/*
 * The part that schemes 1 and 2 share: two messages, one being written, one being read.
 *
 * Owns: one buffer_ctrl per message, which is written, which is read, the hand-over cycles of both sides.
 * Takes: joined beats. Gives: whether a message may start, packets, the beat that is read. Must not: know
 * how much memory there is or where a beat lies.
 */
`default_nettype none

module urma_buffers #(
    parameter W = 64,
    parameter H = 3,
    parameter N = 24
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                start,
    input  wire                abort,
    input  wire                push,
    input  wire                finish,
    input  wire [$clog2(W):0]  bytes,
    input  wire [31:0]         tag,
    input  wire [3:0]          mtu,
    // A message is open; none is open and one may start.
    output logic               writing,
    output wire                can_start,
    // Number of the message that is written, and of the one that is read.
    output logic               write_to,
    output logic               read_from,
    output wire                take_beat,
    output wire                is_freed,
    input  wire                out_ready,
    output wire                out_valid,
    output wire                out_header,
    output wire [31:0]         out_tag,
    output wire [31:0]         out_index,
    output wire [13:0]         out_len,
    output wire                out_first,
    output wire                out_last,
    output wire [$clog2(W):0]  out_bytes,
    output wire                out_end
);
    localparam HB = H > 0 ? $clog2(H + 1) : 1;
    localparam [HB-1:0] HAND = HB'(H);

    logic [HB-1:0] hand;
    logic [HB-1:0] waited;
    wire           take_header;
    wire           take_end = out_valid & out_ready & out_end;
    wire  [1:0]    idle;
    wire  [1:0]    full;
    wire  [1:0]    readable;
    wire  [1:0]    freed;
    wire  [63:0]   tags;
    wire  [63:0]   indices;
    wire  [27:0]   lens;
    wire  [1:0]    lasts;

    genvar k;
    generate
        for (k = 0; k < 2; k = k + 1) begin : ctrl
            wire is_written = write_to == k;
            wire is_read = read_from == k;
            urma_buffer_ctrl #(.W(W), .N(N)) buffer (
                .clk(clk), .rst(rst),
                .start(start & is_written), .abort(abort & is_written), .push(push & is_written),
                .finish(finish & is_written), .bytes(bytes), .in_tag(tag), .in_mtu(mtu),
                .take_header(take_header & is_read), .take_end(take_end & is_read),
                .is_idle(idle[k]), .is_full(full[k]), .is_readable(readable[k]), .is_freed(freed[k]),
                .tag(tags[32*k +: 32]), .index(indices[32*k +: 32]), .len(lens[14*k +: 14]),
                .last(lasts[k])
            );
        end
    endgenerate

    assign can_start = ~writing & (hand == '0) & (write_to ? idle[1] : idle[0]);
    always_ff @(posedge clk) begin
        if (rst) begin
            writing <= 1'b0;
            write_to <= 1'b0;
            hand <= '0;
        end else if (abort) writing <= 1'b0;
        else if (finish) begin
            writing <= 1'b0;
            write_to <= ~write_to;
            hand <= HAND;
        end else begin
            if (start) writing <= 1'b1;
            if (~writing & (hand != '0)) hand <= hand - 1'b1;
        end
    end

    wire is_waiting = (read_from ? full[1] : full[0]) & (waited != HAND);
    wire header_valid = (read_from ? readable[1] : readable[0]) & ~is_waiting;
    assign is_freed = |freed;
    always_ff @(posedge clk) begin
        if (rst) begin
            read_from <= 1'b0;
            waited <= '0;
        end else if (is_freed) begin
            read_from <= ~read_from;
            waited <= '0;
        end else if (is_waiting) waited <= waited + 1'b1;
    end

    assign out_tag = read_from ? tags[63:32] : tags[31:0];
    assign out_index = read_from ? indices[63:32] : indices[31:0];
    assign out_len = read_from ? lens[27:14] : lens[13:0];
    assign out_first = out_index == '0;
    assign out_last = read_from ? lasts[1] : lasts[0];
    urma_reader #(.W(W)) reader (
        .clk(clk), .rst(rst), .header_valid(header_valid), .len(out_len), .out_ready(out_ready),
        .out_valid(out_valid), .out_header(out_header), .out_bytes(out_bytes), .out_end(out_end),
        .take_header(take_header), .take_beat(take_beat)
    );
endmodule

`default_nettype wire
