use super::{ParseQuantityError, Quantity, canonical};

#[track_caller]
fn check(text: &str, canonical: &str) {
    assert_eq!(
        text.parse::<Quantity>().expect(text).to_string(),
        canonical,
        "{text}"
    );
}

#[test]
fn prints_canonically() {
    check("0", "0");
    check("0.5", "500m");
    check("1500", "1500");
    check("1000", "1k");
    check("100000", "100k");
    check("1.5Gi", "1536Mi");
    check("1024Mi", "1Gi");
    check("512", "512");
    check("0.5Ki", "512");
    check("1023.5Ki", "1048064");
    check("1e3", "1e3");
    check("12e-1", "1200e-3");
    check("0.0000000001", "1n");
    check("-250m", "-250m");
    check("+1", "1");
    check(".5", "500m");
    check("5.", "5");
    check("9223372036854775807", "9223372036854775807");
    check("99999999999999999999", "99999999999999999999");
    check("99999999999999999999Ki", "9223372036854775807");
    check("1000E", "1000E");
    check("1E", "1E");
    check("1Ei", "1Ei");
}

#[test]
fn refuses_in_upstreams_words() {
    for text in ["", "x", "1.2.3", "1 ", "1%"] {
        assert_eq!(
            text.parse::<Quantity>(),
            Err(ParseQuantityError::Format),
            "{text}"
        );
    }
    for text in ["1ki", "1mm", "1e", "1KiB2"] {
        assert!(text.parse::<Quantity>().is_err(), "{text}");
    }
}

#[test]
fn adds_and_rounds_up() {
    let sum = "1500m".parse::<Quantity>().expect("valid") + Quantity::from_units(1);
    assert_eq!(
        (sum.to_string().as_str(), sum.units(), sum.millis()),
        ("2500m", 3, 2500)
    );
    assert!("1Gi".parse::<Quantity>().expect("valid") > Quantity::from_units(1_000_000_000));
}

#[test]
fn survives_absurd_input() {
    let long = format!("{}.{}e99", "9".repeat(500), "1".repeat(500));
    check(&long, "170141183460469231731687303715884105727e-9");
    let most = long.parse::<Quantity>().expect("capped");
    assert_eq!(most + most, most);
    check(&(-most - most).to_string(), &(-most).to_string());
    check(&format!("0.{}1", "0".repeat(400)), "1n");
    check("1e-300", "1e-9");
}

/// However many digits stand behind the point, those before it count.
#[test]
fn long_fractions_are_rounded_not_lost() {
    for zeros in [0, 100, 119, 120, 121, 495, 5_000] {
        let zeros = "0".repeat(zeros);
        check(&format!("12345.{zeros}"), "12345");
        check(
            &format!("12345.{zeros}1"),
            if zeros.is_empty() {
                "12345100m"
            } else {
                "12345000000001n"
            },
        );
        check(&format!("12345.{zeros}Ki"), "12345Ki");
        check(&format!("{zeros}12345"), "12345");
    }
    check(&format!("0.5{}1Ki", "0".repeat(300)), "512000000001n");
    check(&format!("123456789{}e-300", "0".repeat(300)), "123456789");
}

/// Answers of `resource.ParseQuantity` to the texts of its own tests and others, printed by
/// `conformance/tools/quantities canonical`: text, format (or `error`), the text that is written.
#[test]
fn reads_as_upstream_reads() {
    let mut lines = 0;
    for line in include_str!("../../testdata/quantities.tsv").lines() {
        let [text, format, written] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        let (our_format, ours) = match text.parse::<Quantity>() {
            Ok(own) => (
                format!("{:?}", own.format()),
                canonical(text).expect("read before"),
            ),
            Err(_) => ("error".to_owned(), Some(String::new())),
        };
        let ours = ours.unwrap_or_else(|| text.to_owned());
        assert_eq!(
            (our_format.to_lowercase(), ours.as_str()),
            (format.to_lowercase(), written),
            "{text}"
        );
        lines += 1;
    }
    assert!(lines > 700, "{lines}");
}
