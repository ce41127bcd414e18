//! Every test that shows hostile inputs is one of the command's targets.

use super::{TARGETS, Targets};
use crate::process;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A function of a file, with its body.
struct Function<'a> {
    name: &'a str,
    is_test: bool,
    body: Vec<&'a str>,
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let mut all: Vec<Function<'_>> = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let own = line.trim_start();
        is_test |= own == "#[test]";
        let own = ["pub(crate) ", "pub(super) ", "pub "]
            .iter()
            .find_map(|word| own.strip_prefix(word))
            .unwrap_or(own);
        let own = own.strip_prefix("async ").unwrap_or(own);
        match own
            .strip_prefix("fn ")
            .and_then(|rest| rest.split(['(', '<']).next())
        {
            Some(name) => all.push(Function {
                name,
                is_test: std::mem::take(&mut is_test),
                body: Vec::new(),
            }),
            None => all.last_mut().into_iter().for_each(|last| last.body.push(line)),
        }
    }
    all
}

impl Function<'_> {
    fn calls(&self, what: &str) -> bool {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let call = format!("{what}(");
        let mut places = self
            .body
            .iter()
            .flat_map(|line| line.match_indices(&call).map(move |(at, _)| &line[..at]));
        places.any(|before| !before.ends_with(is_name))
    }
}

/// Tests of a file that show inputs, by themselves or through a function beside them.
fn showing(text: &str) -> Vec<&str> {
    let all = functions(text);
    let shows = |own: &&Function<'_>| own.calls("fuzz") || own.calls("fuzz_built");
    let helpers: Vec<&str> = all
        .iter()
        .filter(shows)
        .filter(|own| !own.is_test)
        .map(|own| own.name)
        .collect();
    let tests = all.iter().filter(|own| own.is_test);
    let tests = tests.filter(|own| shows(own) || helpers.iter().any(|helper| own.calls(helper)));
    tests.map(|own| own.name).collect()
}

/// A file's package and its test program, and the path of its module.
fn place(root: &Path, file: &Path) -> Option<(String, Option<String>, String)> {
    let folder = file
        .ancestors()
        .skip(1)
        .find(|folder| root.join(folder).join("Cargo.toml").is_file())?;
    let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).ok()?;
    let package = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?;
    let parts: Vec<&str> = file
        .strip_prefix(folder)
        .ok()?
        .to_str()?
        .trim_end_matches(".rs")
        .split('/')
        .collect();
    let (program, module) = match parts.split_first()? {
        (&"tests", rest) => (rest.first().map(|own| (*own).to_owned()), rest.get(1..)?),
        (_, rest) => (None, rest),
    };
    let module = module
        .iter()
        .filter(|part| **part != "mod")
        .map(|part| format!("{part}::"))
        .collect();
    Some((package.to_owned(), program, module))
}

fn takes(targets: &Targets, package: &str, program: Option<&str>, test: &str) -> bool {
    targets.package == package
        && targets.program == program
        && targets.names.iter().any(|name| test.contains(name))
}

#[test]
fn fuzz_targets_are_all_tests_that_show_inputs() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut git = process::command("git");
    git.current_dir(&root)
        .args(["grep", "-l", "-e", "fuzz(", "-e", "fuzz_built(", "--", "*.rs"]);
    let files = process::output(&mut git).unwrap();
    let mut shown: BTreeMap<usize, usize> = BTreeMap::new();
    let mut lost = Vec::new();
    // The crate that shows inputs tests itself, and this one reads of them.
    let own = ["machinery/fuzz/", "xtask/"];
    for file in files
        .lines()
        .filter(|file| !own.iter().any(|folder| file.starts_with(folder)))
    {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let (package, program, module) = place(&root, Path::new(file)).unwrap();
        for test in showing(&text) {
            let name = format!("{module}{test}");
            let row = TARGETS
                .iter()
                .position(|own| takes(own, &package, program.as_deref(), &name));
            match row {
                Some(row) => *shown.entry(row).or_default() += 1,
                None => lost.push(format!("{package} {name}")),
            }
        }
    }
    assert_eq!(lost, [""; 0], "no row of TARGETS takes them");
    let empty: Vec<&str> = (0..TARGETS.len())
        .filter(|row| !shown.contains_key(row))
        .map(|row| TARGETS[row].package)
        .collect();
    assert_eq!(empty, [""; 0], "rows that take no test");
}
