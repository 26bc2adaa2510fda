/*
 * Drives one engine with the beats of a file and prints what it does in each cycle.
 *
 * Owns: clock, reset, the beats that wait. Takes: +beats=FILE, one beat a line: length, first, last, tag, mtu, bytes
 * (all hexadecimal, byte 0 lowest). Gives: lines that begin with a letter and the cycle:
 *
 *   A cycle tag                             a beat is accepted
 *   H cycle tag index length first last     a header
 *   B cycle bytes end data                  a beat of a packet
 *   E cycle errors too_long                 IDLE cycles in a row without any of these
 */
`default_nettype none

module urma_golden;
    parameter W = 64;
    parameter D = 128;
    parameter B = 8;
    parameter H = 3;
    parameter STOP = 0;
    parameter IDLE = 2000;
    localparam L = $clog2(W) + 1;

    reg             clk = 1'b0;
    reg             rst = 1'b1;
    reg             in_valid = 1'b0;
    reg  [8*W-1:0]  in_data;
    reg  [L-1:0]    in_len;
    reg             in_first;
    reg             in_last;
    reg  [31:0]     in_tag;
    reg  [3:0]      in_mtu;
    wire            in_ready, out_valid, out_header, out_first, out_last, out_end;
    wire [31:0]     out_tag, out_index, too_long;
    wire [31:0]     err_empty_beat, err_beat_too_long, err_mtu_changed, err_mtu_range, err_first_missing;
    wire [13:0]     out_len;
    wire [8*W-1:0]  out_data;
    wire [L-1:0]    out_bytes;

    `ENGINE #(.W(W), .D(D), .B(B), .H(H), .STOP(STOP)) engine (
        .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .in_len(in_len), .in_first(in_first), .in_last(in_last), .in_tag(in_tag), .in_mtu(in_mtu), .out_ready(1'b1),
        .out_valid(out_valid), .out_header(out_header), .out_tag(out_tag), .out_index(out_index),
        .out_len(out_len), .out_first(out_first), .out_last(out_last), .out_data(out_data),
        .out_bytes(out_bytes), .out_end(out_end), .err_empty_beat(err_empty_beat),
        .err_beat_too_long(err_beat_too_long), .err_mtu_changed(err_mtu_changed),
        .err_mtu_range(err_mtu_range), .err_first_missing(err_first_missing), .too_long(too_long)
    );

    integer         file;
    integer         cycle;
    integer         idle;
    integer         fields;
    reg [8*256-1:0] path;

    // Beats change at the falling edge, so that the rising edge sees one value from all.
    task next_beat;
        begin
            fields = $fscanf(file, "%h %h %h %h %h %h\n", in_len, in_first, in_last, in_tag, in_mtu,
                in_data);
            in_valid = fields == 6;
        end
    endtask

    always #5 clk = ~clk;

    initial begin
        if (!$value$plusargs("beats=%s", path)) $fatal(1, "+beats=FILE is missing");
        file = $fopen(path, "r");
        if (file == 0) $fatal(1, "cannot open the file of beats");
        repeat (2) @(negedge clk);
        rst = 1'b0;
        cycle = 0;
        idle = 0;
        next_beat;
        while (idle < IDLE) begin
            #4;
            idle = idle + 1;
            if (in_valid & in_ready | out_valid) idle = 0;
            if (in_valid & in_ready) $display("A %0d %0d", cycle, in_tag);
            if (out_valid & out_header)
                $display("H %0d %0d %0d %0d %0d %0d", cycle, out_tag, out_index, out_len, out_first,
                    out_last);
            else if (out_valid) $display("B %0d %0d %0d %h", cycle, out_bytes, out_end, out_data);
            fields = {31'b0, in_valid & in_ready};
            @(negedge clk);
            if (fields != 0) next_beat;
            cycle = cycle + 1;
        end
        $display("E %0d %0d %0d", cycle - IDLE, err_empty_beat + err_beat_too_long + err_mtu_changed
            + err_mtu_range + err_first_missing, too_long);
        $finish;
    end
endmodule

`default_nettype wire
