//! Traffic of the links of a process' network namespace.

use std::path::Path;

use crate::fs::read_head;

/// Links of a namespace that are looked at: a pod may make as many as it likes.
pub const LINKS_MAX: usize = 32;
/// A line has some 130 bytes.
const TABLE_BYTES_MAX: u64 = 64 << 10;

/// Traffic of a link since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkFigures {
    /// Its name.
    pub name: String,
    /// Bytes, packets, errors and dropped packets that came in.
    pub received: [u64; 4],
    /// The same of what went out.
    pub sent: [u64; 4],
}

/// Links in the network namespace of a process, as cAdvisor counts them: without loopback and the outer ends of pods' links.
pub fn links(process: i32) -> Vec<LinkFigures> {
    let path = format!("/proc/{process}/net/dev");
    let bytes = read_head(Path::new(&path), TABLE_BYTES_MAX).unwrap_or_default();
    table(&String::from_utf8_lossy(&bytes))
}

fn table(text: &str) -> Vec<LinkFigures> {
    let all = text.lines().skip(2).filter_map(line);
    all.filter(|link| !is_left_out(&link.name))
        .take(LINKS_MAX)
        .collect()
}

fn is_left_out(name: &str) -> bool {
    let name = name.to_lowercase();
    ["lo", "veth", "docker", "nerdctl"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A name, and sixteen numbers: eight of what came in and eight of what went out.
fn line(line: &str) -> Option<LinkFigures> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers: Vec<u64> = numbers
        .split_ascii_whitespace()
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let four = |from: usize| numbers.get(from..from + 4)?.try_into().ok();
    Some(LinkFigures {
        name: name.trim().to_owned(),
        received: four(0)?,
        sent: four(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_but_loopback_and_outer_ends() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
             lo: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n  \
             eth0: 1500 10 1 2 0 0 0 0    900      9 3 4 0 0 0 0\n\
             veth12: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  \
             a:b: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n\
             cut: 1 2\n";
        let expected = [
            LinkFigures {
                name: "eth0".to_owned(),
                received: [1500, 10, 1, 2],
                sent: [900, 9, 3, 4],
            },
            LinkFigures {
                name: "a:b".to_owned(),
                received: [1, 2, 3, 4],
                sent: [5, 6, 7, 8],
            },
        ];
        assert_eq!(table(text), expected);
        let many: String = (0..100)
            .map(|at| format!("e{at}: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n"))
            .collect();
        assert_eq!(table(&format!("\n\n{many}")).len(), LINKS_MAX);
    }
}
