//! Steps of an addition that no compiler misses: a file that no module names, a file of a kind that its `KIND` does not call,
//! a recipe that does not say what notices, a command of `cargo xtask` that the page for contributors lacks.

use super::Texts;
use super::is_test;
use std::path::Path;

const KINDS: &str = "apiserver/registry/src/kinds/";
const RECIPES: &str = "docs/recipes/README.md";
const COMMANDS: &str = "xtask/src/main.rs";
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Files of a kind, and the calls of `KIND` of which one has to be there.
const CALLS: [(&str, &[&str]); 3] = [
    ("validation.rs", &[".rules("]),
    ("columns.rs", &[".columns("]),
    ("defaults.rs", &[".default_lines(", ".defaults("]),
];

/// Sources that are not compiled, as no `mod` names them.
pub(super) fn modules(texts: &Texts) -> Vec<String> {
    let files = texts
        .keys()
        .filter(|path| path.ends_with(".rs") && !is_test(path));
    let lost = files.filter(|path| {
        let parents = parents(path);
        !parents.is_empty()
            && !parents
                .iter()
                .any(|(parent, module)| names(texts, parent, module))
    });
    lost.map(|path| format!("{path}: no module names it")).collect()
}

fn names(texts: &Texts, parent: &str, module: &str) -> bool {
    let text = texts.get(parent).map_or("", String::as_str);
    text.contains(&format!("mod {module};"))
}

/// Files that may name a source as a module, each with its name there; none for roots of crates and for what is no source.
fn parents(path: &str) -> Vec<(String, String)> {
    let Some((crate_folder, inside)) = path.split_once("/src/") else {
        return Vec::new();
    };
    let inside = Path::new(inside);
    let mut parts: Vec<String> = inside
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    let Some(module) = parts.pop() else {
        return Vec::new();
    };
    let is_root = parts.is_empty() && ["lib", "main"].contains(&&*module);
    if is_root || parts.first().is_some_and(|first| first == "bin") {
        return Vec::new();
    }
    let candidates = match parts.as_slice() {
        [] => vec!["lib.rs".to_owned(), "main.rs".to_owned()],
        folder => vec![
            format!("{}/mod.rs", folder.join("/")),
            format!("{}.rs", folder.join("/")),
        ],
    };
    let named = |file| (format!("{crate_folder}/src/{file}"), module.clone());
    candidates.into_iter().map(named).collect()
}

/// Files of kinds that have no effect, as the `KIND` of their folder does not call them.
pub(super) fn kinds(texts: &Texts) -> Vec<String> {
    let mut problems = Vec::new();
    let kinds = texts
        .iter()
        .filter(|(path, text)| path.starts_with(KINDS) && text.contains("Kind::of("));
    for (path, text) in kinds {
        let Some(folder) = path.strip_suffix("mod.rs") else {
            continue;
        };
        for (file, calls) in CALLS {
            let is_called = calls.iter().any(|call| text.contains(call));
            if texts.contains_key(&format!("{folder}{file}")) && !is_called {
                problems.push(format!("{folder}{file}: {path} lacks {}", calls.join(" or ")));
            }
        }
    }
    problems
}

/// Recipes that do not say what notices a forgotten step.
pub(super) fn recipes(texts: &Texts) -> Vec<String> {
    let page = texts.get(RECIPES).map_or("", String::as_str);
    let table = page.lines().skip_while(|line| !line.ends_with("| noticed by |"));
    let rows = table.take_while(|line| line.starts_with('|'));
    let silent = rows.filter(|row| row.trim_end_matches('|').trim_end().ends_with('|'));
    silent
        .filter_map(|row| row.split('|').nth(1))
        .map(|what| {
            format!(
                "{RECIPES}: `{}` does not say what notices a forgotten step",
                what.trim()
            )
        })
        .collect()
}

/// Commands of `cargo xtask` that the page for contributors does not name.
pub(super) fn commands(texts: &Texts) -> Vec<String> {
    let main = texts.get(COMMANDS).map_or("", String::as_str);
    let page = texts.get(CONTRIBUTING).map_or("", String::as_str);
    let variants = main.lines().filter_map(|line| {
        let line = line.trim().strip_suffix("::Arguments),")?;
        Some(line.split_once('(')?.0.to_lowercase())
    });
    let lines = variants.map(|name| format!("`cargo xtask {name}"));
    let missing = lines.filter(|line| !page.contains(line));
    missing
        .map(|line| format!("{CONTRIBUTING}: does not name {line}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::texts_of as texts;
    use super::*;

    #[test]
    fn sources_without_a_module_are_found() {
        let found = modules(&texts(&[
            ("a/src/lib.rs", "mod b;\npub(crate) mod d;\nmod own;\n"),
            ("a/src/b.rs", ""),
            ("a/src/c.rs", ""),
            ("a/src/d/mod.rs", "mod e;\n"),
            ("a/src/d/e.rs", ""),
            ("a/src/d/f.rs", ""),
            ("a/src/own.rs", "mod part;\n"),
            ("a/src/own/part.rs", ""),
            ("a/src/own/part_tests.rs", ""),
            ("a/src/bin/tool.rs", ""),
            ("a/build.rs", ""),
        ]));
        assert_eq!(
            found,
            [
                "a/src/c.rs: no module names it",
                "a/src/d/f.rs: no module names it"
            ]
        );
    }

    #[test]
    fn files_of_a_kind_that_it_does_not_call_are_found() {
        let file = |path: &str| format!("{KINDS}{path}");
        let (silent, whole) = (file("core/a/mod.rs"), file("core/b/mod.rs"));
        let (rules, defaults, shared) = (
            file("core/a/validation.rs"),
            file("core/b/defaults.rs"),
            file("core/columns.rs"),
        );
        let found = kinds(&texts(&[
            (&silent, "static KIND: Kind = Kind::of(\"\", \"a\");"),
            (&rules, ""),
            (&whole, "Kind::of(\"\", \"b\").default_lines(&[])"),
            (&defaults, ""),
            (&shared, ""),
        ]));
        assert_eq!(found, [format!("{rules}: {silent} lacks .rules(")]);
    }

    #[test]
    fn commands_that_contributors_do_not_find_are_found() {
        let main = "enum Command {\n    /// Tests.\n    Test(test::Arguments),\n    Up(up::Arguments),\n}\n";
        let found = commands(&texts(&[
            (COMMANDS, main),
            (CONTRIBUTING, "| `cargo xtask test --unit` |"),
        ]));
        assert_eq!(found, [format!("{CONTRIBUTING}: does not name `cargo xtask up`")]);
    }

    #[test]
    fn recipes_that_do_not_say_what_notices_are_found() {
        let page = "| to add | touch | example | noticed by |\n|---|---|---|---|\n| a | b | | c |\n| d | e | f | |\n\n| g | |\n";
        let found = recipes(&texts(&[(RECIPES, page)]));
        assert_eq!(
            found,
            [format!(
                "{RECIPES}: `d` does not say what notices a forgotten step"
            )]
        );
    }
}
