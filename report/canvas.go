package report

import (
	"fmt"
	"html"
	"image"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// ink is a colour by name: a class of the page's style sheet, so that one picture serves light, dark and paper. It is a color.Color because
// gonum/plot hands colours on as such; its RGBA is never shown.
type ink string

const (
	inkMain   ink = "main"   // the accent colour: what the picture is about
	inkText   ink = "text"   // beside it
	inkMuted  ink = "muted"  // in the background
	inkFaint  ink = "faint"  // wide, light lines that others lie on
	inkGrid   ink = "grid"   // lines to read values by
	inkAxis   ink = "axis"   // labels of axes
	inkPaper  ink = "paper"  // the page itself
	inkBad    ink = "bad"    // INVALID, and nothing else
	inkSend   ink = "send"   // segments of the generator while sending
	inkTarget ink = "target" // segments of network and server
	inkTake   ink = "take"   // segments of the generator while receiving
)

// RGBA is black.
func (ink) RGBA() (r, g, b, a uint32) { return color.Black.RGBA() }

// canvas is a vg.Canvas that writes SVG whose colours and fonts come from the style sheet of the page around it. vgsvg writes both into
// each element, so that dark pages and system fonts are out of its reach. Texts carry the width that they were laid out with
// (textLength): whatever font a reader has, they take the place that was kept for them.
type canvas struct {
	b             strings.Builder
	width, height float64
	state         penState
}

type penState struct {
	ink    ink
	width  float64
	dashes string
}

func newCanvas(width, height float64) *canvas {
	c := &canvas{width: width, height: height}
	vg.Initialize(c)
	return c
}

// svg is the whole element. id makes those of its title and description unique within the page.
func (c *canvas) svg(id, title, desc string) string {
	return fmt.Sprintf(`<svg viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>%s</svg>`,
		number(c.width), number(c.height), id, id, id, html.EscapeString(title), id, html.EscapeString(desc), c.b.String())
}

// number is v with one decimal where it needs one: a tenth of a pixel.
func number(v float64) string {
	v = math.Round(v*10) / 10
	if v == 0 {
		v = 0 // no minus sign
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// point is pt in SVG, whose y grows downwards.
func (c *canvas) point(pt vg.Point) string {
	return number(pt.X.Points()) + " " + number(c.height-pt.Y.Points())
}

func (c *canvas) SetLineWidth(w vg.Length) { c.state.width = w.Points() }

func (c *canvas) SetLineDash(pattern []vg.Length, _ vg.Length) {
	var parts []string
	for _, l := range pattern {
		parts = append(parts, number(l.Points()))
	}
	c.state.dashes = strings.Join(parts, " ")
}

func (c *canvas) SetColor(col color.Color) {
	i, ok := col.(ink)
	if !ok {
		i = inkText
	}
	c.state.ink = i
}

// Push, Pop, Rotate, Translate and Scale are part of vg.Canvas, for text that does not run from left to right. No figure has any.
func (c *canvas) Push()                  { panic(noTransform) }
func (c *canvas) Pop()                   { panic(noTransform) }
func (c *canvas) Rotate(float64)         { panic(noTransform) }
func (c *canvas) Translate(vg.Point)     { panic(noTransform) }
func (c *canvas) Scale(float64, float64) { panic(noTransform) }

const noTransform = "report: a figure is drawn where it stands"

func (c *canvas) Stroke(path vg.Path) {
	if c.state.width <= 0 {
		return
	}
	dashes := ""
	if c.state.dashes != "" {
		dashes = ` stroke-dasharray="` + c.state.dashes + `"`
	}
	fmt.Fprintf(&c.b, `<path class="l %s" stroke-width="%s"%s d="%s"/>`, c.state.ink, number(c.state.width), dashes, c.data(path))
}

func (c *canvas) Fill(path vg.Path) {
	fmt.Fprintf(&c.b, `<path class="f %s" d="%s"/>`, c.state.ink, c.data(path))
}

func (c *canvas) data(path vg.Path) string {
	var b strings.Builder
	for i := range path {
		switch p := &path[i]; p.Type {
		case vg.MoveComp:
			b.WriteString("M" + c.point(p.Pos))
		case vg.LineComp:
			b.WriteString("L" + c.point(p.Pos))
		case vg.ArcComp:
			c.arc(&b, p)
		case vg.CloseComp:
			b.WriteByte('Z')
		default:
			panic("report: a figure holds no Bezier curve")
		}
	}
	return b.String()
}

// arc is drawn in two halves, because SVG knows no arc that ends where it began.
func (c *canvas) arc(b *strings.Builder, p *vg.PathComp) {
	at := func(angle float64) string {
		sin, cos := math.Sincos(angle)
		return c.point(p.Pos.Add(vg.Point{X: p.Radius * vg.Length(cos), Y: p.Radius * vg.Length(sin)}))
	}
	sweep := 0
	if p.Angle < 0 {
		sweep = 1
	}
	r := number(p.Radius.Points())
	fmt.Fprintf(b, "L%s", at(p.Start))
	for _, share := range []float64{0.5, 1} {
		fmt.Fprintf(b, "A%s %s 0 0 %d %s", r, r, sweep, at(p.Start+share*p.Angle))
	}
}

func (c *canvas) FillString(f font.Face, pt vg.Point, text string) {
	x, y, _ := strings.Cut(c.point(pt), " ")
	fmt.Fprintf(&c.b, `<text class="f %s" x="%s" y="%s" font-size="%s" textLength="%s" lengthAdjust="spacingAndGlyphs">%s</text>`,
		c.state.ink, x, y, number(f.Font.Size.Points()), number(f.Width(text).Points()), html.EscapeString(text))
}

// DrawImage is part of vg.Canvas. Figures are lines, areas and text.
func (c *canvas) DrawImage(vg.Rectangle, image.Image) {
	panic("report: a figure holds no image")
}
