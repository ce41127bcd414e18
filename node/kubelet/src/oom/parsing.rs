//! Lines of the kernel about the OOM killer (upstream's `oomparser`, of cAdvisor). Pure.

/// The first words of a report follow the name of the process that asked for memory.
const BEGINNING: &str = "invoked oom-killer:";
/// The line of kernels since 5.0 that names the groups.
const SUMMARY: &str = "oom-kill:constraint=";
const KILLED: &str = "Killed process ";
/// The same of kernels before.
const LEGACY: (&str, &str) = ("Task in ", " killed as a result of limit of ");

/// The end of a process by the OOM killer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OomKill {
    /// The group whose limit was reached; `/` where the machine itself had no memory left.
    pub(super) limited: String,
    pub(super) process: String,
    pub(super) pid: u64,
}

/// A reader of such lines, one after the other.
#[derive(Debug, Default)]
pub(super) struct OomParser {
    /// Group of the report that is being read.
    limited: Option<String>,
}

impl OomParser {
    /// Reads a line; returns the kill that it ends the report of.
    pub(super) fn read(&mut self, line: &str) -> Option<OomKill> {
        if line.contains(BEGINNING) {
            self.limited = Some("/".to_owned());
            return None;
        }
        let limited = self.limited.as_mut()?;
        let found = summary(line).or_else(|| {
            if let Some(group) = legacy_group(line) {
                *limited = group;
            }
            let (pid, process) = killed(line)?;
            let limited = limited.clone();
            Some(OomKill {
                limited,
                process,
                pid,
            })
        });
        if found.is_some() {
            self.limited = None;
        }
        found
    }
}

/// Reads `oom-kill:constraint=C,nodemask=N,cpuset=S,mems_allowed=M,oom_memcg=G,task_memcg=T,task=NAME,pid=P,uid=U` from its end, since
/// names of groups and processes may have commas. Without `oom_memcg`, where the machine has run out, it is another line's part to name
/// the process.
fn summary(line: &str) -> Option<OomKill> {
    let (_, report) = line.split_once(SUMMARY)?;
    let (report, _uid) = report.rsplit_once(",uid=")?;
    let (report, pid) = report.rsplit_once(",pid=")?;
    let (report, process) = report.rsplit_once(",task=")?;
    let (report, _group) = report.rsplit_once(",task_memcg=")?;
    let (_, limited) = report.rsplit_once(",oom_memcg=")?;
    Some(OomKill {
        limited: limited.to_owned(),
        process: process.to_owned(),
        pid: pid.parse().ok()?,
    })
}

fn legacy_group(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(LEGACY.0)?;
    let (_, group) = rest.rsplit_once(LEGACY.1)?;
    Some(format!("/{}", group.trim_matches('/')))
}

/// Reads `Killed process 17 (name)`; a name may have brackets.
fn killed(line: &str) -> Option<(u64, String)> {
    let (_, rest) = line.split_once(KILLED)?;
    let (pid, rest) = rest.split_once(" (")?;
    let (name, _) = rest.rsplit_once(')')?;
    let is_named = !name.is_empty();
    is_named.then_some((pid.parse().ok()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expected: &[(&str, &str, u64)]) {
        let mut parser = OomParser::default();
        let found = lines.lines().filter_map(|line| parser.read(line.trim()));
        let found: Vec<OomKill> = found.collect();
        let expected = expected.iter().map(|(limited, process, pid)| OomKill {
            limited: (*limited).to_owned(),
            process: (*process).to_owned(),
            pid: *pid,
        });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{lines}");
    }

    #[test]
    fn oom_kill_of_the_machine_and_of_a_group_differ() {
        check(
            "stress invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0
             Mem-Info:
             oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=7,uid=0
             Out of memory: Killed process 7 (stress) total-vm:1kB, anon-rss:2kB",
            &[("/", "stress", 7)],
        );
        check(
            "sh invoked oom-killer: gfp_mask=0xcc0
             oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/p,task_memcg=/kubepods/p/c,task=a,pid=1,uid=2,pid=9,uid=0
             Memory cgroup out of memory: Killed process 9 (a) total-vm:1kB",
            &[("/kubepods/p", "a,pid=1,uid=2", 9)],
        );
        check(
            "sh invoked oom-killer: gfp_mask=0xcc0
             Task in /kubepods/p/c killed as a result of limit of /kubepods/p
             Memory cgroup out of memory: Killed process 5 (a b)) total-vm:1kB",
            &[("/kubepods/p", "a b)", 5)],
        );
    }

    #[test]
    fn oom_lines_without_a_beginning_or_an_end_are_no_kill() {
        check("Out of memory: Killed process 7 (x)", &[]);
        check(
            "a invoked oom-killer: x\nb invoked oom-killer: x\nKilled process 7 (b)\nKilled process 8 (c)",
            &[("/", "b", 7)],
        );
        check(
            "a invoked oom-killer: x\nKilled process x (b)\nKilled process 7 ()",
            &[],
        );
    }

    #[test]
    fn oom_lines_fuzz_never_panics() {
        let good = "a invoked oom-killer: x\noom-kill:constraint=C,oom_memcg=/p,task_memcg=/p/c,task=a,pid=1,uid=0\nKilled process 1 (a)";
        machinery_fuzz::fuzz([good], |input: &[u8]| {
            let mut parser = OomParser::default();
            for line in String::from_utf8_lossy(input).lines() {
                drop(parser.read(line));
            }
        });
    }
}
