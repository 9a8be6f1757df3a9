// Judges a combinational float32-to-E2M1 encoder with the exported vectors of encode_e2m1/HOPPER/float32.
module e2m1_encode (input logic [31:0] x, output logic [3:0] code);
  // Magnitude bits order as magnitudes do, so each midpoint of E2M1 is one comparison; ties go to the even code.
  wire [30:0] m = x[30:0];
  wire nan = m > 31'h7F800000;
  wire [2:0] magnitude = (m > 31'h3E800000) + (m >= 31'h3F400000) + (m > 31'h3FA00000) + (m >= 31'h3FE00000)
                       + (m > 31'h40200000) + (m >= 31'h40600000) + (m > 31'h40A00000);
  assign code = nan ? 4'h7 : {x[31], magnitude};
endmodule

module check_vectors;
  localparam int DEPTH = 1 << 16;  // more than the files hold: what is not loaded stays X
  logic [31:0] index [0:DEPTH-1];  // a vector: first word, rows, columns of input_x, then of output_codes
  logic [31:0] input_x [0:DEPTH-1];
  logic [7:0] output_codes [0:DEPTH-1];
  logic [31:0] x;
  wire [3:0] code;
  int vectors = 0, elements = 0, wrong = 0;

  e2m1_encode encoder (.x(x), .code(code));

  initial begin
    $readmemh("index.hex", index);
    $readmemh("input_x.hex", input_x);
    $readmemh("output_codes.hex", output_codes);
    while (index[6 * vectors] !== 32'hx) begin
      for (int i = 0; i < index[6 * vectors + 1] * index[6 * vectors + 2]; i++) begin
        x = input_x[index[6 * vectors] + i];
        #1;
        if ({4'h0, code} !== output_codes[index[6 * vectors + 3] + i]) begin
          $display("wrong: vector %0d element %0d x %h code %h", vectors, i, x, code);
          wrong++;
        end
        elements++;
      end
      vectors++;
    end
    $display("%0d vectors, %0d elements, %0d wrong", vectors, elements, wrong);
  end
endmodule
