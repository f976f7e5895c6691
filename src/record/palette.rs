//! The signed scale: one colour for a number between -1 and 1, safe for colour-blind readers.

use serde::Deserialize;

use super::RecordError;

/// A colour: red, green and blue, 0 to 1, as they stand in a `#rrggbb` text.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rgb(pub [f64; 3]);

/// Three colours that a signed number is mixed from.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedScale {
    /// At -1.
    pub negative: Rgb,
    /// At 0.
    pub zero: Rgb,
    /// At 1.
    pub positive: Rgb,
}

/// The scale on light and on dark pages.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Palette {
    /// On light pages.
    pub light: SignedScale,
    /// On dark pages.
    pub dark: SignedScale,
}

impl Palette {
    /// The colours shipped inside the program.
    ///
    /// # Errors
    /// [`RecordError::Layout`] if the shipped file is wrong, which a test rules out.
    pub fn shipped() -> Result<Self, RecordError> {
        ron::from_str(include_str!("../../assets/palette.ron")).map_err(|e| RecordError::Layout {
            what: "assets/palette.ron",
            why: e.to_string(),
        })
    }
}

impl SignedScale {
    /// The colour of `value`, mixed in OKLab; what is outside -1 to 1 gets the end's colour.
    #[must_use]
    pub fn at(self, value: f64) -> Rgb {
        let end = if value < 0.0 {
            self.negative
        } else {
            self.positive
        };
        let share = value.abs().min(1.0);
        let (from, to) = (self.zero.to_oklab(), end.to_oklab());
        let mix = |i: usize| from[i] + (to[i] - from[i]) * share;
        Rgb::from_oklab([mix(0), mix(1), mix(2)])
    }
}

impl Rgb {
    /// Black or white, whichever reads better on this colour.
    #[must_use]
    pub fn text(self) -> Self {
        let white = Self([1.0; 3]);
        let black = Self([0.0; 3]);
        if self.contrast(white) > self.contrast(black) {
            white
        } else {
            black
        }
    }

    /// WCAG contrast ratio, 1 to 21.
    #[must_use]
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// As CSS writes it.
    #[must_use]
    pub fn hex(self) -> String {
        let [r, g, b] = self.0.map(|v| (v.clamp(0.0, 1.0) * 255.0).round() as u8);
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    fn luminance(self) -> f64 {
        let [r, g, b] = self.0.map(to_linear);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn to_oklab(self) -> [f64; 3] {
        let rgb = self.0.map(to_linear);
        let lms = times(&TO_LMS, rgb).map(f64::cbrt);
        times(&TO_LAB, lms)
    }

    fn from_oklab(lab: [f64; 3]) -> Self {
        let lms = times(&FROM_LAB, lab).map(|v| v * v * v);
        Self(times(&FROM_LMS, lms).map(|v| from_linear(v).clamp(0.0, 1.0)))
    }
}

impl TryFrom<String> for Rgb {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("{text:?} is no colour; write it as \"#rrggbb\"");
        let digits = text.strip_prefix('#').filter(|d| d.len() == 6);
        let value = u32::from_str_radix(digits.ok_or_else(bad)?, 16).map_err(|_| bad())?;
        let [_, r, g, b] = value.to_be_bytes();
        Ok(Self([r, g, b].map(|v| f64::from(v) / 255.0)))
    }
}

type Matrix = [[f64; 3]; 3];

/// Bjorn Ottosson's OKLab: linear sRGB to cone response, and its cube root to lightness and colour.
const TO_LMS: Matrix = [
    [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
    [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
    [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
];
const TO_LAB: Matrix = [
    [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
    [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
    [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
];
const FROM_LAB: Matrix = [
    [1.0, 0.396_337_777_4, 0.215_803_757_3],
    [1.0, -0.105_561_345_8, -0.063_854_172_8],
    [1.0, -0.089_484_177_5, -1.291_485_548_0],
];
const FROM_LMS: Matrix = [
    [4.076_741_662_1, -3.307_711_591_3, 0.230_969_929_2],
    [-1.268_438_004_6, 2.609_757_401_1, -0.341_319_396_5],
    [-0.004_196_086_3, -0.703_418_614_7, 1.707_614_701_0],
];

fn times(matrix: &Matrix, v: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

fn to_linear(v: f64) -> f64 {
    if v <= 0.040_45 {
        v / 12.92
    } else {
        ((v + 0.055) / 1.055).powf(2.4)
    }
}

fn from_linear(v: f64) -> f64 {
    if v <= 0.003_130_8 {
        v * 12.92
    } else {
        1.055 * v.powf(1.0 / 2.4) - 0.055
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_the_scale_can_be_read_everywhere() {
        let Palette { light, dark } = Palette::shipped().unwrap();
        for scale in [light, dark] {
            for level in -10..=10 {
                let colour = scale.at(f64::from(level) / 10.0);
                assert!(colour.contrast(colour.text()) > 4.5, "{}", colour.hex());
            }
        }
    }

    #[test]
    fn the_ends_and_the_middle_are_the_colours_of_the_file() {
        let scale = Palette::shipped().unwrap().light;
        assert_eq!(scale.at(-2.0).hex(), "#b35806");
        assert_eq!(scale.at(0.0).hex(), "#f7f7f7");
        assert_eq!(scale.at(1.0).hex(), "#2166ac");
        assert!(Rgb::try_from("red".to_owned()).is_err());
    }
}
