/*
 * Scheme 2: one RAM with two buffer_ctrl.
 *
 * Owns: one ring of D beats, and addr_ctrl. Takes: joined beats. Gives:
 * packets of messages that are complete. A message beyond the ring is refused, or waits for ever (STOP = 1).
 */
`default_nettype none

module urma_single #(
    parameter W = 64,
    parameter D = 128,
    parameter H = 3,
    parameter STOP = 0
) (
    input  wire                clk,
    input  wire                rst,
    output wire                space,
    output wire                open_space,
    output wire                refuse,
    input  wire                start,
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
    localparam A = D > 1 ? $clog2(D) : 1;
    localparam C = $clog2(D + 1);
    localparam M = $clog2(D * W) + 1;
    localparam N = M > 15 ? M : 15;

    wire           writing;
    wire           can_start;
    wire           write_to;
    wire           read_from;
    wire           take_beat;
    wire           is_freed;
    wire  [A-1:0]  write_at;
    wire  [A-1:0]  read_at;
    logic [C-1:0]  used;
    wire  [C-1:0]  written;
    wire           is_alone = written == C'(D);
    wire           has_room = used != C'(D);

    assign open_space = writing | can_start;
    assign space = open_space & (has_room | (is_alone & STOP == 0));
    assign refuse = push & is_alone & STOP == 0;

    wire [C-1:0] pushed = {{(C-1){1'b0}}, push};
    wire [C-1:0] taken = {{(C-1){1'b0}}, take_beat};
    always_ff @(posedge clk) begin
        if (rst) used <= '0;
        else if (abort) used <= used - written - taken;
        else used <= used + pushed - taken;
    end

    urma_addr_ctrl #(.D(D)) addr_ctrl (
        .clk(clk), .rst(rst), .write_to(write_to), .read_from(read_from), .writing(writing),
        .start(start), .push(push), .take_beat(take_beat), .is_freed(is_freed), .written(written),
        .write_at(write_at), .read_at(read_at)
    );
    urma_ram #(.WIDTH(8*W), .DEPTH(D)) ram (
        .clk(clk), .write(push), .write_at(write_at), .write_data(data),
        .read_at(read_at), .read_data(out_data)
    );
    urma_buffers #(.W(W), .H(H), .N(N)) buffers (
        .clk(clk), .rst(rst), .start(start), .abort(abort), .push(push), .finish(finish),
        .bytes(bytes), .tag(tag), .mtu(mtu), .writing(writing), .can_start(can_start),
        .write_to(write_to), .read_from(read_from), .take_beat(take_beat), .is_freed(is_freed),
        .out_ready(out_ready), .out_valid(out_valid), .out_header(out_header), .out_tag(out_tag),
        .out_index(out_index), .out_len(out_len), .out_first(out_first), .out_last(out_last),
        .out_bytes(out_bytes), .out_end(out_end)
    );
endmodule

`default_nettype wire
