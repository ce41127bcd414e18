//! `cargo xtask docs`: the pages of `docs/` as a site, made by mdBook.
//!
//! mdBook is built once from its crate, into the cache of tools; no CI does that, since it takes minutes. `cargo xtask tidy` sees
//! that `docs/SUMMARY.md` names every page. The book is made of a copy: the summary gets a line for each decision, and links out of
//! `docs/`, which lead nowhere in a site, become plain text.

use crate::config::Config;
use crate::process;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The release of mdBook.
const MDBOOK_VERSION: &str = "0.5.4";
/// Folder of the copy, from the root; the site is beside it.
const SOURCE: &str = "target/book-source";
const SITE: &str = "target/book";

/// No choice to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(config: &Config, _: &Arguments) -> Result<()> {
    let mdbook = mdbook(config)?;
    let source = config.root.join(SOURCE);
    if source.try_exists()? {
        fs::remove_dir_all(&source)?;
    }
    copy(&config.root.join("docs"), &source, Path::new(""))?;
    let mut build = process::command(mdbook);
    build.arg("build").arg(&config.root);
    process::run(build.env("MDBOOK_BOOK__SRC", SOURCE))?;
    println!("in {}", config.root.join(SITE).display());
    Ok(())
}

/// The program, built where it is missing.
fn mdbook(config: &Config) -> Result<PathBuf> {
    let root = config.tools.join(format!("mdbook-{MDBOOK_VERSION}"));
    let program = root.join("bin/mdbook");
    if !program.try_exists()? {
        println!("building mdbook {MDBOOK_VERSION} (once) …");
        let mut install = process::cargo(&config.root);
        install.args([
            "install",
            "mdbook",
            "--version",
            MDBOOK_VERSION,
            "--locked",
            "--no-default-features",
            "--features",
            "search",
        ]);
        install.arg("--root").arg(&root);
        // Beside the target directory of the workspace, whose builds it would wait for and disturb.
        install.arg("--target-dir").arg(root.join("target"));
        process::run(&mut install)?;
        fs::remove_dir_all(root.join("target"))?;
    }
    Ok(program)
}

/// Copies a folder; `inside` is its path below `docs/`.
fn copy(from: &Path, to: &Path, inside: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name())
        };
        let (target, inside) = (to.join(&name), inside.join(&name));
        if path.is_dir() {
            copy(&path, &target, &inside)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            let mut text = fs::read_to_string(&path)?;
            if inside == Path::new("SUMMARY.md") {
                text.push_str(&decisions(&from.join("decisions"))?);
            }
            let is_summary = inside == Path::new("SUMMARY.md");
            let page = without_links_out(&text, inside.components().count() - 1);
            fs::write(target, if is_summary { page } else { with_indexes(&page) })?;
        } else {
            fs::copy(&path, target)?;
        }
    }
    Ok(())
}

/// Lines of the summary for the decisions below the folder.
fn decisions(folder: &Path) -> Result<String> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        pages.push((name, fs::read_to_string(entry.path())?));
    }
    Ok(lines(&mut pages))
}

/// A line for each decision, in order of their numbers.
fn lines(pages: &mut [(String, String)]) -> String {
    pages.sort();
    let decisions = pages.iter().filter(|(name, _)| name != "README.md");
    let line = |(name, text): &(String, String)| {
        let heading = text.lines().next()?.strip_prefix("# ")?;
        Some(format!("  - [{heading}](decisions/{name})\n"))
    };
    decisions.filter_map(line).collect()
}

/// A page in which links that leave `docs/` are their texts; `depth` is the number of folders that it lies in.
fn without_links_out(text: &str, depth: usize) -> String {
    let out = "../".repeat(depth + 1);
    let mut parts = text.split("](");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_out = part.starts_with(&out);
        match (part.split_once(')'), page.rfind('[')) {
            (Some((_, rest)), Some(begin)) if is_out => {
                page.remove(begin);
                page.push_str(rest);
            }
            _ => {
                page.push_str("](");
                page.push_str(part);
            }
        }
    }
    page
}

/// A page whose links to a `README.md` lead to the index of its folder, as which mdBook writes it.
fn with_indexes(page: &str) -> String {
    let mut parts = page.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(')').unwrap_or(0));
        out.push_str("](");
        out.push_str(&target.replace("README.md", "index.md"));
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_links_out_of_the_pages_become_text() {
        let page = "[a](b.md), [README](../README.md#x), [c](../d.md) [e](f/g.md)";
        let outside = "[a](b.md), README, c [e](f/g.md)";
        assert_eq!(without_links_out(page, 0), outside);
        assert_eq!(
            without_links_out(page, 1),
            page,
            "a page in a folder stays inside"
        );
        assert_eq!(without_links_out("[a](../../b) [", 1), "a [");
    }

    #[test]
    fn docs_links_to_a_readme_lead_to_an_index() {
        let page = "[a](README.md#x) [b](c/README.md), `README.md` (README.md) [d](e.md)";
        let site = "[a](index.md#x) [b](c/index.md), `README.md` (README.md) [d](e.md)";
        assert_eq!(with_indexes(page), site);
    }

    #[test]
    fn docs_summary_lists_decisions_by_number() {
        let mut pages = [
            ("0002-b.md", "# 0002: Second\n"),
            ("0001-a.md", "# 0001: First\n"),
            ("README.md", "# Decisions\n"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(
            lines(&mut pages),
            "  - [0001: First](decisions/0001-a.md)\n  - [0002: Second](decisions/0002-b.md)\n"
        );
    }
}
