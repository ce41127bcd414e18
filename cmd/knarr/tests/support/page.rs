//! The commands of a page of `docs/`: its blocks `sh`, one script each. A line that ends with `# refused` must fail.

/// The blocks of a page, in their order.
pub(crate) fn blocks(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().trim())
}

/// The block as a script that ends where a command fails, or is not refused.
pub(crate) fn script(block: &str) -> String {
    let lines = block.lines().map(|line| match line.strip_suffix(" # refused") {
        Some(line) => format!("if {line}; then exit 42; fi\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}
