//! Writes `table.bin` from `facts/` and `additions/` into the folder named first, and `descriptions.bin` beside it from the file
//! of upstream's descriptions, when that is named second. Without arguments the folder is `src`.
//! `cargo xtask codegen` runs it after making the facts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let out = arguments.next().unwrap_or_else(|| here.join("src"));
    let mut files = BTreeMap::new();
    for folder in ["facts/", "facts/types/", "additions/types/"] {
        for entry in std::fs::read_dir(here.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let folder = if folder.ends_with("types/") { "types/" } else { "" };
            if name.ends_with(".json") {
                files.insert(format!("{folder}{name}"), std::fs::read_to_string(entry.path())?);
            }
        }
    }
    let added = std::fs::read_to_string(here.join("additions/resources.json"))?;
    files.insert(machinery_api::compile::ADDED_RESOURCES.to_owned(), added);
    write(&out.join("table.bin"), &machinery_api::compile::compile(&files)?)?;
    if let Some(text) = arguments.next() {
        let packed = machinery_api::compile::pack_descriptions(&std::fs::read_to_string(text)?)?;
        write(&out.join("descriptions.bin"), &packed)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    eprintln!("{}: {} bytes", path.display(), bytes.len());
    std::fs::write(path, bytes)
}
