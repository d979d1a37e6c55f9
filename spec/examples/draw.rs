//! Draws one sequence out of a file: `cargo run -p metaroce-spec --example draw -- vectors/sequences/gap-and-repair.json gap-and-repair`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, id] = arguments.as_slice() else {
        eprintln!("usage: draw FILE ID");
        return ExitCode::from(2);
    };
    let file = std::fs::read_to_string(path)
        .map_err(|error| error.to_string())
        .and_then(|text| metaroce_spec::parse_sequences(&text).map_err(|error| error.to_string()));
    match file {
        Ok(file) => match file.sequences.iter().find(|sequence| sequence.id == *id) {
            Some(sequence) => print!("{}", metaroce_spec::render(sequence)),
            None => {
                eprintln!("{path}: no sequence {id}");
                return ExitCode::FAILURE;
            }
        },
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
