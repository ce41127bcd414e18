//! The resolver's configuration file, as upstream's kubelet reads it.

/// Settings of a `resolv.conf`, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// Name servers, in order.
    pub servers: Vec<String>,
    /// Domains in which names are looked for; of several lines the last counts.
    pub searches: Vec<String>,
    /// Options; of several with one name the last counts.
    pub options: Vec<String>,
}

impl ResolvConf {
    /// Reads the file's text. Unknown lines are passed over.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => found.servers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    let domains = words.filter(|domain| *domain != ".");
                    let trimmed = domains.map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned());
                    found.searches = trimmed.collect();
                }
                Some("options") => words.for_each(|option| found.set_option(option)),
                _ => {}
            }
        }
        found
    }

    fn set_option(&mut self, option: &str) {
        let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
        let wanted = name(option);
        self.options.retain(|own| name(own) != wanted);
        self.options.push(option.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, servers: &[&str], searches: &[&str], options: &[&str]) {
        let mut found = ResolvConf::parse(text);
        let mut options: Vec<&str> = options.to_vec();
        options.sort_unstable();
        found.options.sort_unstable();
        assert_eq!(found.servers, servers, "{text:?}");
        assert_eq!(found.searches, searches, "{text:?}");
        assert_eq!(found.options, options, "{text:?}");
    }

    /// Upstream's `TestParseResolvConf`.
    #[test]
    fn resolv_conf_is_read_as_upstreams() {
        for text in [
            "",
            " ",
            "\n",
            "\t\n\t",
            "#comment\n",
            " #comment\n",
            "#comment\nnameserver\nsearch",
            "search .",
            "options ",
        ] {
            check(text, &[], &[], &[]);
        }
        for text in [
            "nameserver 1.2.3.4",
            " nameserver 1.2.3.4",
            "nameserver \t 1.2.3.4",
            "nameserver 1.2.3.4 #comment",
        ] {
            check(text, &["1.2.3.4"], &[], &[]);
        }
        check(
            "nameserver 1.2.3.4\nnameserver 5.6.7.8",
            &["1.2.3.4", "5.6.7.8"],
            &[],
            &[],
        );
        check("nameservers 1.2.3.4", &[], &[], &[]);
        for (text, searches) in [
            ("search . foo", &["foo"][..]),
            ("search foo .  bar", &["foo", "bar"]),
            ("search foo. bar", &["foo", "bar"]),
            ("search foo bar bat\n", &["foo", "bar", "bat"]),
            ("search foo\nsearch bar", &["bar"]),
        ] {
            check(text, &[], searches, &[]);
        }
        for (text, options) in [
            ("options ndots:5 attempts:2", &["ndots:5", "attempts:2"][..]),
            ("options ndots:1 ndots:5 attempts:2", &["ndots:5", "attempts:2"]),
            (
                "options ndots:1 edns0 attempts:2",
                &["ndots:1", "edns0", "attempts:2"],
            ),
            (
                "options ndots:1\noptions ndots:5 attempts:3",
                &["ndots:5", "attempts:3"],
            ),
            (
                "options ndots:1 timeout:3 timeout:1 attempts:3\noptions ndots:5",
                &["ndots:5", "timeout:1", "attempts:3"],
            ),
        ] {
            check(text, &[], &[], options);
        }
        let all =
            "nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar\noptions ndots:5 attempts:4";
        check(all, &["1.2.3.4", "5.6.7.8"], &["bar"], &["ndots:5", "attempts:4"]);
    }
}
