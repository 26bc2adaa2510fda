/*
 * Memory with one write port and one registered read port.
 *
 * Owns: the words. Takes: a write, and the address to read. Gives: its word in the next cycle. A word that
 * is written in this cycle is not seen by the read of this cycle.
 */
`default_nettype none

module urma_ram #(
    parameter WIDTH = 512,
    parameter DEPTH = 128,
    parameter A = DEPTH > 1 ? $clog2(DEPTH) : 1
) (
    input  wire              clk,
    input  wire              write,
    input  wire  [A-1:0]     write_at,
    input  wire  [WIDTH-1:0] write_data,
    input  wire  [A-1:0]     read_at,
    output logic [WIDTH-1:0] read_data
);
    logic [WIDTH-1:0] words[0:DEPTH-1];

    always_ff @(posedge clk) begin
        if (write) words[write_at] <= write_data;
        read_data <= words[read_at];
    end
endmodule

`default_nettype wire
