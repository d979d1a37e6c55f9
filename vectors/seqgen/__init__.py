"""Makes the worked sequences of vectors/sequences and judges them, without any code of the Rust crates."""
