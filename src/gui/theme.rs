//! The colours and text sizes of the window, from `assets/theme.ron` and `assets/palette.ron`.

use eframe::egui::{
    Color32, Context, CornerRadius, FontId, Stroke, TextStyle, Theme as Ground, ThemePreference,
    Visuals,
};
use serde::Deserialize;

use super::GuiError;
use crate::record::{Palette, Rgb, SignedScale};

/// Steps of the signed scale on each side of 0: finer than a screen shows.
const STEPS: usize = 64;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeFile {
    light: Named,
    dark: Named,
}

/// The named colours of one ground.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    ground: Rgb,
    raised: Rgb,
    text: Rgb,
    weak: Rgb,
    line: Rgb,
    focus: Rgb,
    selected: Rgb,
    warning: Rgb,
    masked: Rgb,
    runs: Vec<Rgb>,
}

/// The colours of one ground, ready to paint with.
#[derive(Clone, Debug)]
pub struct Colours {
    /// Behind everything.
    pub ground: Color32,
    /// Cards and text fields.
    pub raised: Color32,
    /// Text.
    pub text: Color32,
    /// Text of less weight.
    pub weak: Color32,
    /// Separators, grid lines.
    pub line: Color32,
    /// The thing with the keyboard's focus, and what is pinned.
    pub focus: Color32,
    /// Behind the selected row.
    pub selected: Color32,
    /// Trouble.
    pub warning: Color32,
    /// Text of tokens that are not trained on.
    pub masked: Color32,
    /// One a run.
    runs: Vec<Color32>,
    /// (fill, text on it) from -1 to 1.
    signed: Vec<(Color32, Color32)>,
}

impl Colours {
    fn new(named: &Named, scale: SignedScale) -> Self {
        let signed = (0..=2 * STEPS)
            .map(|at| {
                let value = (at as f64 - STEPS as f64) / STEPS as f64;
                let fill = scale.at(value);
                (colour(fill), colour(fill.text()))
            })
            .collect();
        Self {
            ground: colour(named.ground),
            raised: colour(named.raised),
            text: colour(named.text),
            weak: colour(named.weak),
            line: colour(named.line),
            focus: colour(named.focus),
            selected: colour(named.selected),
            warning: colour(named.warning),
            masked: colour(named.masked),
            runs: named.runs.iter().map(|rgb| colour(*rgb)).collect(),
            signed,
        }
    }

    /// Fill and text colour of a number between -1 and 1; what lies outside gets the end's.
    #[must_use]
    pub fn signed(&self, value: f32) -> (Color32, Color32) {
        let value = if value.is_finite() { value } else { 0.0 };
        let at = ((value.clamp(-1.0, 1.0) + 1.0) * STEPS as f32).round() as usize;
        let plain = (self.ground, self.text);
        self.signed.get(at).copied().unwrap_or(plain)
    }

    /// The colour of a run; colours come round again after eight.
    #[must_use]
    pub fn run(&self, number: usize) -> Color32 {
        let count = self.runs.len().max(1);
        self.runs.get(number % count).copied().unwrap_or(self.text)
    }
}

/// Both grounds.
#[derive(Clone, Debug)]
pub struct Theme {
    light: Colours,
    dark: Colours,
}

impl Theme {
    /// The colours shipped inside the program.
    ///
    /// # Errors
    /// A shipped file is wrong, which a test rules out.
    pub fn shipped() -> Result<Self, GuiError> {
        let asset = |name, why: String| GuiError::Asset { name, why };
        let file: ThemeFile = ron::from_str(include_str!("../../assets/theme.ron"))
            .map_err(|e| asset("assets/theme.ron", e.to_string()))?;
        let palette = Palette::shipped().map_err(|e| asset("assets/palette.ron", e.to_string()))?;
        Ok(Self {
            light: Colours::new(&file.light, palette.light),
            dark: Colours::new(&file.dark, palette.dark),
        })
    }

    /// The colours of the ground that is shown now.
    #[must_use]
    pub fn of(&self, context: &Context) -> &Colours {
        self.on(context.theme())
    }

    fn on(&self, ground: Ground) -> &Colours {
        match ground {
            Ground::Light => &self.light,
            Ground::Dark => &self.dark,
        }
    }

    /// Gives the window its colours, sizes and ground.
    pub fn apply(&self, context: &Context, preference: ThemePreference) {
        for ground in [Ground::Light, Ground::Dark] {
            context.set_visuals_of(ground, self.visuals(ground));
        }
        context.all_styles_mut(|style| {
            // Nothing smaller than 12 points.
            style.text_styles = [
                (TextStyle::Small, FontId::proportional(12.0)),
                (TextStyle::Body, FontId::proportional(13.5)),
                (TextStyle::Button, FontId::proportional(13.5)),
                (TextStyle::Heading, FontId::proportional(17.0)),
                (TextStyle::Monospace, FontId::monospace(13.0)),
            ]
            .into();
            style.spacing.item_spacing = eframe::egui::vec2(7.0, 5.0);
            style.spacing.button_padding = eframe::egui::vec2(7.0, 3.0);
            // Nothing has to move to be understood.
            style.animation_time = 0.0;
        });
        context.set_theme(preference);
    }

    fn visuals(&self, ground: Ground) -> Visuals {
        let colours = self.on(ground);
        let mut visuals = match ground {
            Ground::Light => Visuals::light(),
            Ground::Dark => Visuals::dark(),
        };
        visuals.panel_fill = colours.ground;
        visuals.window_fill = colours.raised;
        visuals.extreme_bg_color = colours.raised;
        visuals.faint_bg_color = colours.raised;
        visuals.override_text_color = Some(colours.text);
        visuals.weak_text_color = Some(colours.weak);
        visuals.warn_fg_color = colours.warning;
        visuals.error_fg_color = colours.warning;
        visuals.hyperlink_color = colours.focus;
        visuals.selection.bg_fill = colours.selected;
        visuals.selection.stroke = Stroke::new(1.5, colours.focus);
        visuals.window_corner_radius = CornerRadius::same(4);
        visuals.widgets.noninteractive.bg_stroke = Stroke::new(1.0, colours.line);
        visuals
    }
}

fn colour(rgb: Rgb) -> Color32 {
    let [r, g, b] = rgb.0.map(|v| (v.clamp(0.0, 1.0) * 255.0).round() as u8);
    Color32::from_rgb(r, g, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_colour_can_be_read_on_every_ground() {
        let file: ThemeFile = ron::from_str(include_str!("../../assets/theme.ron")).unwrap();
        for named in [file.light, file.dark] {
            let texts = [named.text, named.weak, named.warning, named.masked];
            for text in texts.iter().chain(&named.runs) {
                for ground in [named.ground, named.raised] {
                    let contrast = text.contrast(ground);
                    assert!(
                        contrast >= 4.5,
                        "{} on {}: {contrast:.2}",
                        text.hex(),
                        ground.hex()
                    );
                }
            }
            assert!(named.text.contrast(named.selected) >= 4.5);
        }
    }

    #[test]
    fn the_signed_scale_is_neutral_at_nothing_and_at_what_is_no_number() {
        let theme = Theme::shipped().unwrap();
        let dark = theme.on(Ground::Dark);
        assert_eq!(dark.signed(0.0).0, dark.ground);
        assert_eq!(dark.signed(f32::NAN), dark.signed(0.0));
        assert_eq!(dark.signed(7.0), dark.signed(1.0));
        assert_ne!(dark.signed(1.0).0, dark.signed(-1.0).0);
    }
}
