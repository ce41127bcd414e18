use super::canonical;
use crate::table::Shape;

#[track_caller]
fn check(shape: Shape, text: &str, expected: &str) {
    let got = match canonical(shape, text) {
        Ok(None) => text.to_owned(),
        Ok(Some(other)) => other,
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(got, expected, "{text}");
}

#[test]
fn quantities_are_written_canonically() {
    for (text, expected) in [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("100", "100"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("1500m", "1500m"),
        ("1.500", "1.500"),
        ("1.50", "1500m"),
        ("1000000000000000.1234567Ki", "1024000000000000126419660800n"),
    ] {
        check(Shape::Quantity, text, expected);
    }
    check(
        Shape::Quantity,
        "much",
        "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
}

#[test]
fn times_are_in_utc_and_whole_seconds() {
    for (text, expected) in [
        ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00Z"),
        ("2026-11-21T12:00:00+02:00", "2026-11-21T10:00:00Z"),
        ("2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
        (
            "soon",
            r#"error: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#,
        ),
        (
            "2020-01-01T00:00:00.5Zx",
            r#"error: parsing time "2020-01-01T00:00:00.5Zx": extra text: "x""#,
        ),
        (
            "2023-02-29T00:00:00Z",
            r#"error: parsing time "2023-02-29T00:00:00Z": day out of range"#,
        ),
    ] {
        check(Shape::Time, text, expected);
    }
    check(
        Shape::MicroTime,
        "2026-11-21T12:00:00Z",
        r#"error: parsing time "2026-11-21T12:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
    );
    check(
        Shape::MicroTime,
        "2026-11-21T12:00:00.123456-01:00",
        "2026-11-21T13:00:00.123456Z",
    );
    check(
        Shape::MicroTime,
        "2026-11-21T12:00:00.1234567Z",
        r#"error: parsing time "2026-11-21T12:00:00.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#,
    );
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for (text, expected) in [
        ("90s", "1m30s"),
        ("1.5h", "1h30m0s"),
        ("300ms", "300ms"),
        ("0", "0s"),
        ("-1us", "-1µs"),
        ("1", r#"error: time: missing unit in duration "1""#),
        ("1x", r#"error: time: unknown unit "x" in duration "1x""#),
    ] {
        check(Shape::Duration, text, expected);
    }
}

#[test]
fn bytes_are_base64() {
    check(Shape::Bytes, "aGk=", "aGk=");
    for (text, at) in [
        ("a*", 1),
        ("aGk=x", 4),
        ("aGk=\nx", 5),
        ("aA=x", 2),
        ("aA=\nx", 3),
        ("aA=", 3),
        ("aA==x", 4),
        ("a===", 1),
    ] {
        let expected = format!("error: illegal base64 data at input byte {at}");
        check(Shape::Bytes, text, &expected);
    }
}
