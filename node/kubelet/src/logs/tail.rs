//! Finding the end of a log. Everything here blocks.

use std::io::{Read, Result, Seek, SeekFrom};

/// Read at a time.
const CHUNK_BYTES: u64 = 64 << 10;

/// Returns the offset of the last `lines` lines of a file. Text after the last line end is no line, as upstream.
pub(super) fn tail_start(file: &mut std::fs::File, lines: u64) -> Result<u64> {
    let mut missing = lines;
    let mut end = file.metadata()?.len();
    let mut buffer = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(CHUNK_BYTES);
        file.seek(SeekFrom::Start(start))?;
        buffer.clear();
        file.take(end - start).read_to_end(&mut buffer)?;
        let ends = buffer.iter().enumerate().rev();
        for (place, _) in ends.filter(|(_, byte)| **byte == b'\n') {
            if missing == 0 {
                return Ok(start + place as u64 + 1);
            }
            missing -= 1;
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[track_caller]
    fn check(text: &str, lines: u64, start: usize) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        assert_eq!(tail_start(&mut file, lines).unwrap(), start as u64, "{lines}");
    }

    #[test]
    fn end_of_a_log_begins_where_so_many_whole_lines_do() {
        for (lines, start) in [(0, 6), (1, 4), (2, 2), (3, 0), (4, 0), (u64::MAX, 0)] {
            check("a\nb\nc\n", lines, start);
            check("a\nb\nc\nbroken off", lines, start);
        }
        check("", 1, 0);
        check("broken off", 0, 0);
        let long = format!("{}\nlast\n", "x".repeat(200_000));
        check(&long, 1, 200_001);
        check(&long, 2, 0);
    }
}
