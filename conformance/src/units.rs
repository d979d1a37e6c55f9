//! Quantities with their unit, as they stand in YAML. A bare number is an error: nobody can know what it counts.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DurationNs(u64);

impl DurationNs {
    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// In nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(u64);

impl Size {
    /// From bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A share of 100 %.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Percent(f64);

impl Percent {
    /// As a probability, 0 to 1.
    pub fn probability(self) -> f64 {
        self.0 / 100.0
    }
}

macro_rules! quantity {
    ($type:ty, $expecting:literal, $read:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        $read(text).ok_or_else(|| {
                            E::custom(format!(concat!("{:?} is not ", $expecting), text))
                        })
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

quantity!(
    DurationNs,
    "a time with its unit, such as 250us, 1ms or 2s",
    |text| {
        scaled(
            text,
            &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
            ],
        )
        .map(DurationNs)
    }
);
quantity!(
    Size,
    "a size with its unit, such as 100B, 64KiB or 1MiB",
    |text| {
        scaled(
            text,
            &[
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
                ("B", 1),
            ],
        )
        .map(Size)
    }
);
quantity!(
    Percent,
    "a share with its unit, such as 2%",
    |text: &str| {
        let number: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
        (0.0..=100.0).contains(&number).then_some(Percent(number))
    }
);

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, scale) = units.iter().find_map(|(unit, scale)| {
        let number = text.strip_suffix(unit)?.trim_end();
        number
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then_some((number, scale))
    })?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_their_unit() {
        let time = |text: &str| crate::yaml::from_str::<DurationNs>(text);
        assert_eq!(time("1ms"), Ok(DurationNs(1_000_000)));
        assert_eq!(time("20 us"), Ok(DurationNs(20_000)));
        for bad in [
            "5",
            "ms",
            "-1ms",
            "1.5ms",
            "1m",
            "99999999999999999999s",
            "99999999999999s",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(crate::yaml::from_str::<Size>("64KiB"), Ok(Size(65536)));
        assert!(crate::yaml::from_str::<Size>("64").is_err());
        assert_eq!(crate::yaml::from_str::<Percent>("2%"), Ok(Percent(2.0)));
        assert!(crate::yaml::from_str::<Percent>("101%").is_err());
        assert!(crate::yaml::from_str::<Percent>("0.5").is_err());
    }
}
