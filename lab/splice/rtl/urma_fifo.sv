/*
 * FIFO with one write and one read port, both registered: what is pushed in cycle t is seen in t + 1.
 *
 * Owns: the words, their number, the mark up to which they are kept. Takes: push, pop; `keep` keeps all words
 * up to the push of this cycle; `undo` removes those that are not kept. Gives: the oldest word.
 * Must not: be pushed when full or popped when empty.
 */
`default_nettype none

module urma_fifo #(
    parameter WIDTH = 512,
    parameter DEPTH = 128,
    parameter PASS = 1
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    push,
    input  wire  [WIDTH-1:0]       push_data,
    input  wire                    keep,
    input  wire                    undo,
    input  wire                    pop,
    output wire  [WIDTH-1:0]       front,
    output wire                    is_full,
    output wire                    is_empty
);
    localparam A = DEPTH > 1 ? $clog2(DEPTH) : 1;
    localparam C = $clog2(DEPTH + 1);
    localparam [A-1:0] LAST = A'(DEPTH - 1);

    logic [A-1:0] head;
    logic [A-1:0] tail;
    logic [A-1:0] mark;
    logic [C-1:0] count;
    logic [C-1:0] loose;

    wire [A-1:0] tail_next = tail == LAST ? '0 : tail + 1'b1;
    wire [A-1:0] head_next = pop ? (head == LAST ? '0 : head + 1'b1) : head;
    wire [C-1:0] pushed = {{(C-1){1'b0}}, push};
    wire [C-1:0] popped = {{(C-1){1'b0}}, pop};

    assign is_full = count == C'(DEPTH);
    assign is_empty = count == '0;

    always_ff @(posedge clk) begin
        if (rst) begin
            head <= '0;
            tail <= '0;
            mark <= '0;
            count <= '0;
            loose <= '0;
        end else begin
            head <= head_next;
            if (undo) begin
                tail <= mark;
                count <= count - loose - popped;
                loose <= '0;
            end else begin
                if (push) tail <= tail_next;
                count <= count + pushed - popped;
                if (keep) begin
                    mark <= push ? tail_next : tail;
                    loose <= '0;
                end else loose <= loose + pushed;
            end
        end
    end

    // With PASS, a word that is pushed into the place to be read next passes by the memory. Without, it must
    // not be popped before cycle t + 2.
    wire [WIDTH-1:0] stored;
    generate
        if (PASS != 0) begin : pass
            logic [WIDTH-1:0] passed;
            logic             is_passed;
            assign front = is_passed ? passed : stored;
            always_ff @(posedge clk) begin
                is_passed <= push & (tail == head_next);
                if (push) passed <= push_data;
            end
        end else begin : no_pass
            assign front = stored;
        end
    endgenerate

    urma_ram #(.WIDTH(WIDTH), .DEPTH(DEPTH)) ram (
        .clk(clk), .write(push), .write_at(tail), .write_data(push_data),
        .read_at(head_next), .read_data(stored)
    );
endmodule

`default_nettype wire
