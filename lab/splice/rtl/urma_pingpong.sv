/*
 * Scheme 1: ping-pong RAM.
 *
 * Owns: two banks of D/2 beats, a write and a read address. Takes: joined beats. Gives: packets of messages
 * that are complete. A message beyond a bank is refused, or waits for ever (STOP = 1).
 */
`default_nettype none

module urma_pingpong #(
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
    localparam BANK = D / 2;
    localparam A = BANK > 1 ? $clog2(BANK) : 1;
    localparam C = $clog2(BANK + 1);
    localparam M = $clog2(BANK * W) + 1;
    localparam N = M > 15 ? M : 15;

    wire           writing;
    wire           can_start;
    wire           write_to;
    wire           read_from;
    wire           take_beat;
    wire           is_freed;
    logic [C-1:0]  written;
    logic [A-1:0]  read;
    wire           is_full = written == C'(BANK);

    assign open_space = writing | can_start;
    assign space = open_space & (~is_full | STOP == 0);
    assign refuse = push & is_full & STOP == 0;

    always_ff @(posedge clk) begin
        if (rst | abort | finish) written <= '0;
        else if (push) written <= written + 1'b1;
    end

    wire [A-1:0] read_next = is_freed ? '0 : (take_beat ? read + 1'b1 : read);
    always_ff @(posedge clk) begin
        if (rst) read <= '0;
        else read <= read_next;
    end

    wire [8*W-1:0] bank_data_0;
    wire [8*W-1:0] bank_data_1;
    assign out_data = read_from ? bank_data_1 : bank_data_0;
    urma_ram #(.WIDTH(8*W), .DEPTH(BANK)) bank_0 (
        .clk(clk), .write(push & ~write_to), .write_at(written[A-1:0]), .write_data(data),
        .read_at(read_next), .read_data(bank_data_0)
    );
    urma_ram #(.WIDTH(8*W), .DEPTH(BANK)) bank_1 (
        .clk(clk), .write(push & write_to), .write_at(written[A-1:0]), .write_data(data),
        .read_at(read_next), .read_data(bank_data_1)
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
