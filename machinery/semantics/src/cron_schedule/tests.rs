use super::Schedule;
use jiff::Timestamp;

#[test]
fn cron_schedule_errors_match_upstream() {
    let cases = [
        ("* * * * ?", ""),
        ("*/5,30-40/2 0 1-15 JAN-mar mon", ""),
        ("@every 1h30m", ""),
        ("@hourly", ""),
        ("CRON_TZ=Europe/Oslo 0 4 * * *", ""),
        ("5/10 * * * ,", ""),
        ("bad", "expected exactly 5 fields, found 1: [bad]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        (
            "5-2 * * * *",
            "beginning of range (5) beyond end of range (2): 5-2",
        ),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        (
            "* * * * funday",
            "failed to parse int from funday: strconv.Atoi: parsing \"funday\": invalid syntax",
        ),
        ("@often", "unrecognized descriptor: @often"),
        (
            "@every day",
            "failed to parse duration @every day: time: invalid duration \"day\"",
        ),
        (
            "TZ=Nowhere * * * * *",
            "provided bad location Nowhere: unknown time zone Nowhere",
        ),
        (
            "TZ=UTC",
            "invalid schedule format: runtime error: slice bounds out of range [:-1]",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(
            Schedule::parse(text).err().unwrap_or_default(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn cron_schedule_fuzz_never_panics() {
    let good = ["*/5,30-40/2 0 1-15 JAN-mar mon", "CRON_TZ=Europe/Oslo @every 1h"];
    // The first zone reads the index of all zones, once.
    Schedule::parse(good[1]).unwrap();
    machinery_fuzz::fuzz_built(good, built, |input| {
        let text = String::from_utf8_lossy(input);
        let said = machinery_fuzz::in_proportion(input, 64, || Schedule::parse(&text));
        let said = said.err().unwrap_or_default();
        assert!(said.len() <= 8 * text.len() + 256, "{} bytes", said.len());
    });
}

/// Fields of many ranges, ranges of many parts, long numbers and zones.
fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
    let mut text = match random.below(6) {
        0 => format!("TZ={} ", random.name()),
        1 => format!("CRON_TZ=Europe/{} ", "Oslo/".repeat(random.count())),
        2 => return format!("@every {}", "9h".repeat(random.count())).into_bytes(),
        _ => String::new(),
    };
    let fields = if random.below(4) > 0 { 5 } else { random.count() };
    for _ in 0..fields {
        let part = match random.below(6) {
            0 => "*".to_owned(),
            1 => "9".repeat(random.count()),
            2 => "1-".repeat(random.count()),
            3 => "1/".repeat(random.count()),
            4 => random
                .pick(&["mon-fri", "jan", "?", "0-59/61", "-1", "5-2"])
                .to_owned(),
            _ => random.name(),
        };
        let ranges = vec![part; random.count().max(1)].join(",");
        text.push_str(&ranges);
        text.push_str(random.pick(&[" ", "  ", "\t", "\u{a0}"]));
        if text.len() > 1 << 16 {
            break;
        }
    }
    text.into_bytes()
}

/// `(schedule, after, expected)`: of `spec_test.go` of robfig/cron, and changes of clocks.
#[test]
fn cron_schedule_times_match_upstream() {
    let rows: Vec<(String, String, Option<String>)> =
        serde_json::from_str(include_str!("../../testdata/cron_times.json")).unwrap();
    for (text, after, expected) in rows {
        let next = Schedule::parse(&text).unwrap().next(after.parse().unwrap());
        let expected: Option<Timestamp> = expected.map(|at| at.parse().unwrap());
        assert_eq!(next, expected, "{text} after {after}");
    }
}
