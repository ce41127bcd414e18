//! Writes `src/table.bin` from `facts/`, and `src/descriptions.bin` from what `descriptions/` printed when its
//! output is given as a file. `cargo xtask codegen` does the same after making the facts.

use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for folder in ["", "types/"] {
        for entry in std::fs::read_dir(here.join("facts").join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") {
                files.insert(format!("{folder}{name}"), std::fs::read_to_string(entry.path())?);
            }
        }
    }
    let blob = machinery_api::compile::compile(&files)?;
    std::fs::write(here.join("src/table.bin"), &blob)?;
    if let Some(path) = std::env::args().nth(1) {
        let packed = machinery_api::compile::pack_descriptions(&std::fs::read_to_string(path)?);
        std::fs::write(here.join("src/descriptions.bin"), &packed)?;
        eprintln!("src/descriptions.bin: {} bytes", packed.len());
    }
    eprintln!("src/table.bin: {} bytes", blob.len());
    Ok(())
}
