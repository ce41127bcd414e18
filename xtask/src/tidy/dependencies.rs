//! Dependencies that a manifest has and the crate's sources do not name, which cost builds and draw arrows that are none.
//!
//! A dependency of a library or program is named in `src/`, one of a build script in `build.rs`, one of tests in any other file.
//! A crate that is there for its features alone, or is named by what a macro makes, stands in the manifest under
//! `[package.metadata.cargo-machete] ignored`, where cargo-machete has it too.

use super::{Dependency, Metadata, Package, Texts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of packages' libraries in code, by package.
type Libraries<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// Dependencies without use, and entries of `ignored` without a dependency.
pub(super) fn unused(metadata: &Metadata, texts: &Texts) -> Vec<String> {
    let libraries = libraries(metadata);
    let all = metadata.ours().flat_map(|package| {
        let folder = package.folder(&metadata.workspace_root);
        let sources = sources(texts, &folder);
        let ignored = package.ignored();
        let unused = package.dependencies.iter().filter(|own| {
            !ignored.contains(own.name.as_str()) && !is_used(own, &own.names(&libraries), &sources)
        });
        let unused = unused.map(|own| format!("does not use its {}{}", own.kind(), own.name));
        let is_known = |name: &str| package.dependencies.iter().any(|own| own.name == name);
        let stale = ignored.iter().filter(|name| !is_known(name));
        let stale = stale.map(|name| format!("ignores {name}, which is no dependency of it"));
        let of_package = |problem| format!("{folder}/Cargo.toml: {} {problem}", package.name);
        unused.chain(stale).map(of_package).collect::<Vec<_>>()
    });
    all.collect()
}

fn libraries(metadata: &Metadata) -> Libraries<'_> {
    let mut out = Libraries::new();
    for package in &metadata.packages {
        let libraries = package.targets.iter().filter(|target| {
            let is_library = |kind: &String| kind.ends_with("lib") || kind == "proc-macro";
            target.kind.iter().any(is_library)
        });
        out.entry(&package.name)
            .or_default()
            .extend(libraries.map(|target| target.name.replace('-', "_")));
    }
    out
}

/// Rust files of a package, by path from its folder.
fn sources<'a>(texts: &'a Texts, folder: &str) -> Vec<(&'a str, &'a str)> {
    let own = texts.iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(folder)?.strip_prefix('/')?;
        path.ends_with(".rs").then_some((path, text.as_str()))
    });
    own.collect()
}

fn is_used(dependency: &Dependency, names: &BTreeSet<String>, sources: &[(&str, &str)]) -> bool {
    let may_use = |path: &str| match dependency.kind.as_deref() {
        None => path.starts_with("src/"),
        Some("build") => path == "build.rs",
        _ => path != "build.rs",
    };
    let mut own = sources.iter().filter(|(path, _)| may_use(path));
    own.any(|(_, text)| names.iter().any(|name| is_named(text, name)))
}

/// Reports whether code names a crate: in a path, a macro call or an import.
fn is_named(text: &str, name: &str) -> bool {
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let is_part = before.ends_with(|last: char| last.is_alphanumeric() || "_:.".contains(last));
            let is_import = before.ends_with("use ") || before.ends_with("extern crate ");
            let is_whole = is_import && after.starts_with([';', ' ']);
            !is_part && (after.starts_with("::") || after.starts_with('!') || is_whole)
        })
    })
}

impl Package {
    /// Path of its folder from the root.
    fn folder(&self, root: &str) -> String {
        let manifest = Path::new(&self.manifest_path);
        let folder = manifest.parent().and_then(|own| own.strip_prefix(root).ok());
        folder.map_or_else(String::new, |own| own.display().to_string())
    }

    /// Dependencies that need no name in the sources.
    fn ignored(&self) -> BTreeSet<&str> {
        let listed = self.metadata.pointer("/cargo-machete/ignored");
        let names = listed.and_then(serde_json::Value::as_array).into_iter().flatten();
        names.filter_map(serde_json::Value::as_str).collect()
    }
}

impl Dependency {
    /// Its names in code.
    fn names(&self, libraries: &Libraries<'_>) -> BTreeSet<String> {
        let code_name = |name: &str| BTreeSet::from([name.replace('-', "_")]);
        match &self.rename {
            Some(renamed) => code_name(renamed),
            None => match libraries.get(self.name.as_str()) {
                Some(names) if !names.is_empty() => names.clone(),
                _ => code_name(&self.name),
            },
        }
    }

    fn kind(&self) -> &'static str {
        match self.kind.as_deref() {
            None => "dependency ",
            Some("build") => "build dependency ",
            _ => "dev dependency ",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts_of;
    use super::*;
    use serde_json::json;

    fn metadata(dependencies: serde_json::Value, ignored: serde_json::Value) -> Metadata {
        let library = |name: &str, library: &str| {
            json!({"id": name, "name": name, "manifest_path": "elsewhere/Cargo.toml", "dependencies": [],
                "targets": [{"kind": ["lib"], "name": library}]})
        };
        let own = json!({"id": "own", "name": "own", "manifest_path": "/root-of/a/own/Cargo.toml",
            "dependencies": dependencies, "targets": [],
            "metadata": {"cargo-machete": {"ignored": ignored}}});
        let packages = [
            own,
            library("pki-types", "types_of_pki"),
            library("with-dash", "with-dash"),
        ];
        serde_json::from_value(
            json!({"packages": packages, "workspace_members": ["own"], "workspace_root": "/root-of"}),
        )
        .unwrap()
    }

    #[track_caller]
    fn check(kind: Option<&str>, name: &str, file: &str, code: &str, expected: bool) {
        let metadata = metadata(json!([{"name": name, "kind": kind}]), json!([]));
        let texts = texts_of(&[
            (&format!("a/own/{file}"), code),
            ("a/other/src/lib.rs", "use one;"),
        ]);
        let found = unused(&metadata, &texts);
        assert_eq!(found.is_empty(), expected, "{name} in {file}: {code}: {found:?}");
    }

    #[test]
    fn dependencies_are_named_where_their_kind_is_compiled() {
        for (kind, src, tests, build) in [
            (None, true, false, false),
            (Some("dev"), true, true, false),
            (Some("build"), false, false, true),
        ] {
            check(kind, "one", "src/a/b.rs", "use one::Two;", src);
            check(kind, "one", "tests/all.rs", "use one::Two;", tests);
            check(kind, "one", "build.rs", "use one::Two;", build);
        }
    }

    #[test]
    fn dependencies_are_named_by_paths_macros_and_imports() {
        for (code, expected) in [
            ("let a = one::two();", true),
            ("    one!(a)", true),
            ("#[one::main]", true),
            ("#[serde(with = \"one::form\")]", true),
            ("use one;", true),
            ("use one as other;", true),
            ("extern crate one;", true),
            ("use other::one::Two;", false),
            ("self.one::<u8>()", false),
            ("let one = stone::two(one);", false),
            ("/// See [`one::two`].", false),
            ("", false),
        ] {
            check(None, "one", "src/lib.rs", code, expected);
        }
        check(None, "with-dash", "src/lib.rs", "use with_dash::A;", true);
        check(None, "pki-types", "src/lib.rs", "use types_of_pki::A;", true);
        check(None, "pki-types", "src/lib.rs", "use pki_types::A;", false);
    }

    #[test]
    fn dependencies_that_are_renamed_or_ignored_are_known() {
        let renamed = json!([{"name": "one", "rename": "two-three"}]);
        let texts = texts_of(&[("a/own/src/lib.rs", "use two_three::A;")]);
        assert_eq!(unused(&metadata(renamed, json!([])), &texts), [""; 0]);
        let dependencies = json!([{"name": "one"}, {"name": "two", "kind": "dev"}]);
        let found = unused(&metadata(dependencies, json!(["one", "gone"])), &texts);
        assert_eq!(
            found,
            [
                "a/own/Cargo.toml: own does not use its dev dependency two",
                "a/own/Cargo.toml: own ignores gone, which is no dependency of it"
            ]
        );
    }
}
