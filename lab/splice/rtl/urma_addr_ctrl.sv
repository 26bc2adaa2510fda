/*
 * Addresses of scheme 2 in its one ring.
 *
 * Owns: start and length of both messages, how many beats are read. Takes: which message is written and which
 * is read, and the beats of both. Gives: both addresses. A message starts where the one before it ended.
 */
`default_nettype none

module urma_addr_ctrl #(
    parameter D = 128,
    parameter A = D > 1 ? $clog2(D) : 1,
    parameter C = $clog2(D + 1)
) (
    input  wire          clk,
    input  wire          rst,
    input  wire          write_to,
    input  wire          read_from,
    input  wire          writing,
    input  wire          start,
    input  wire          push,
    input  wire          take_beat,
    input  wire          is_freed,
    // Beats of the message that is written.
    output wire [C-1:0]  written,
    output wire [A-1:0]  write_at,
    // Address of the beat that is on the output in the next cycle.
    output wire [A-1:0]  read_at
);
    localparam [C:0] RING = (C+1)'(D);

    logic [A-1:0] start_0;
    logic [A-1:0] start_1;
    logic [C-1:0] length_0;
    logic [C-1:0] length_1;
    logic [C-1:0] read;

    // A message that is not open yet lies behind the other one.
    wire          is_zero = write_to ^ writing;
    wire [A-1:0]  write_start = is_zero ? start_0 : start_1;
    wire [C-1:0]  write_length = is_zero ? length_0 : length_1;
    wire [A-1:0]  read_start = read_from ? start_1 : start_0;
    wire [C-1:0]  read_next = is_freed ? '0 : (take_beat ? read + 1'b1 : read);
    wire [C:0]    write_sum = {{(C+1-A){1'b0}}, write_start} + {1'b0, write_length};
    wire [C:0]    read_sum = {{(C+1-A){1'b0}}, read_start} + {1'b0, read_next};
    wire [C:0]    write_wrapped = write_sum >= RING ? write_sum - RING : write_sum;
    wire [C:0]    read_wrapped = read_sum >= RING ? read_sum - RING : read_sum;
    wire          unused_bits = |{write_wrapped[C:A], read_wrapped[C:A]};
    wire [C-1:0]  length_next = written + {{(C-1){1'b0}}, push};

    assign written = writing ? write_length : '0;
    assign write_at = write_wrapped[A-1:0];
    assign read_at = read_wrapped[A-1:0];

    always_ff @(posedge clk) begin
        if (rst) begin
            start_0 <= '0;
            start_1 <= '0;
            length_0 <= '0;
            length_1 <= '0;
            read <= '0;
        end else begin
            read <= read_next;
            if (start & ~write_to) start_0 <= write_at;
            if (start & write_to) start_1 <= write_at;
            if ((start | push) & ~write_to) length_0 <= length_next;
            if ((start | push) & write_to) length_1 <= length_next;
        end
    end
endmodule

`default_nettype wire
