//! The README's table of features is true: it names what the server stores without effect, leads to the open points of each
//! feature, and counts the specs that pass.

use super::Texts;
use super::links::{name, targets};
use std::collections::BTreeSet;

const KINDS: &str = "apiserver/registry/src/kinds/";
const OPEN: &str = "docs/open-points.md";
const RESULTS: &str = "conformance/results.tsv";

/// Sections of the open points that are no feature of users.
const OF_MAINTAINERS: [&str; 3] = ["Speed and size", "Tests", "Structure"];

/// Differences between the kinds that say they have no effect and the last column of the README's table.
pub(super) fn unenforced(texts: &Texts) -> Vec<String> {
    let kinds = texts
        .iter()
        .filter(|(path, text)| path.starts_with(KINDS) && text.contains(".not_enforced("));
    let listed: BTreeSet<&str> = kinds
        .filter_map(|(_, text)| text.split_once("Kind::of(")?.1.split('"').nth(3))
        .collect();
    let table = between(texts, "README.md", "| stored without effect |\n", "\n\n");
    let cells = table
        .lines()
        .filter_map(|line| line.strip_suffix('|')?.rsplit_once('|'));
    let shown: BTreeSet<&str> = cells
        .flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2))
        .collect();
    let missing = listed.difference(&shown);
    let missing =
        missing.map(|name| format!("README.md: the table of features lacks `{name}`, which has no effect"));
    let wrong = shown.difference(&listed);
    missing
        .chain(wrong.map(|name| format!("README.md: `{name}` has an effect by its folder in {KINDS}")))
        .collect()
}

fn between<'t>(texts: &'t Texts, path: &str, begin: &str, end: &str) -> &'t str {
    let text = texts.get(path).map_or("", String::as_str);
    let rest = text.split_once(begin).map_or("", |(_, rest)| rest);
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

/// Sections of the open points to which no row of the README's table leads.
pub(super) fn sections(texts: &Texts) -> Vec<String> {
    let open = texts.get(OPEN).map_or("", String::as_str);
    let table = between(texts, "README.md", "| stored without effect |\n", "\n\n");
    let linked: BTreeSet<&str> = targets(table)
        .filter_map(|target| target.strip_prefix(OPEN)?.strip_prefix('#'))
        .collect();
    let features = open.lines().filter_map(|line| line.strip_prefix("## "));
    let features = features.filter(|title| !OF_MAINTAINERS.contains(title));
    let missing = features.filter(|title| !linked.contains(&*name(title)));
    missing
        .map(|title| {
            format!(
                "README.md: no row of the table of features leads to {OPEN}#{}",
                name(title)
            )
        })
        .collect()
}

/// A number of passing specs that is not that of the last results.
pub(super) fn specs(texts: &Texts) -> Vec<String> {
    let results = texts.get(RESULTS).map_or("", String::as_str);
    let specs = results.lines().filter(|line| line.contains("[Conformance]"));
    let (passed, others): (Vec<&str>, Vec<&str>) =
        specs.partition(|line| line.split('\t').nth(1) == Some("pass"));
    let claim = format!("All {} specs of upstream's conformance suite pass", passed.len());
    let readme = texts.get("README.md").map_or("", String::as_str);
    if readme.contains(&claim) && others.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "README.md: {} specs pass and {} do not by {RESULTS}; it does not say so as `{claim}`",
        passed.len(),
        others.len()
    )]
}

#[cfg(test)]
mod tests {
    use super::super::texts_of as texts;
    use super::*;

    #[test]
    fn readme_names_the_resources_without_effect() {
        let kind = |name: &str, group: &str| {
            let path = format!("{KINDS}{group}/kind/mod.rs");
            let text =
                format!("static KIND: Kind = Kind::of(\"{group}\", \"{name}\").not_enforced(\"none\");");
            (path, text)
        };
        let (bounds, sets) = (kind("limitranges", ""), kind("daemonsets", "apps"));
        let other = (
            format!("{KINDS}apps/other/mod.rs"),
            "Kind::of(\"apps\", \"deployments\");",
        );
        let table = |cell: &str| {
            format!("| feature | stored without effect |\n|---|---|\n| a `b` |{cell}|\n\n| c | `d` |\n")
        };
        let check = |cell: &str| {
            let table = table(cell);
            let files = [
                (bounds.0.as_str(), bounds.1.as_str()),
                (&sets.0, &sets.1),
                (&other.0, other.1),
                ("README.md", &table),
            ];
            unenforced(&texts(&files))
        };
        assert_eq!(check("`limitranges` `daemonsets`"), Vec::<String>::new());
        assert_eq!(
            check("`limitranges` `deployments`"),
            [
                "README.md: the table of features lacks `daemonsets`, which has no effect".to_owned(),
                format!("README.md: `deployments` has an effect by its folder in {KINDS}"),
            ]
        );
    }

    #[test]
    fn sections_of_open_points_are_led_to_by_the_table() {
        let open = "# Open points\n\n## API\n\n## Storage, etcd\n\n## Tests\n";
        let table = |cell: &str| {
            format!("| feature | stored without effect |\n|---|---|\n| {cell} | |\n\n[x]({OPEN}#api)\n")
        };
        let check = |cell: &str| sections(&texts(&[(OPEN, open), ("README.md", &table(cell))]));
        let both = format!("[API]({OPEN}#api) [storage]({OPEN}#storage-etcd)");
        assert_eq!(check(&both), Vec::<String>::new());
        assert_eq!(
            check(&format!("[storage]({OPEN}#storage-etcd)")),
            [format!(
                "README.md: no row of the table of features leads to {OPEN}#api"
            )]
        );
    }

    #[test]
    fn specs_that_pass_are_those_of_the_results() {
        let results = "spec\tresult\na [Conformance]\tpass\nb [Conformance]\tpass\nc\tfail\n";
        let check = |claim: &str, results: &str| specs(&texts(&[("README.md", claim), (RESULTS, results)]));
        let claim = "All 2 specs of upstream's conformance suite pass, here.";
        assert_eq!(check(claim, results), Vec::<String>::new());
        assert_eq!(
            check("All 3 specs of upstream's conformance suite pass", results).len(),
            1
        );
        assert_eq!(
            check(claim, &results.replace("c\t", "c [Conformance]\t")).len(),
            1
        );
    }
}
