# Draws what docs/figures/measure-messages has counted: what a node sends in an iteration, against
# the number of nodes.
# usage: awk -f messages.awk messages.tsv

function line(x1, y1, x2, y2, style) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

# Twice as many are one step to the right, or up.
function x_of(n) { return left + 14 + log(n / 2) / log(8) * (right - left - 28) }

function y_of(count) { return bottom - log(count) / log(ceiling) * (bottom - top) }

# A line through the values of one column, with its name at its end.
function draw_line(place, column, colour, dashes, name, shift,    i, n) {
    n = n_points[place]
    printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" %s points=\"", \
        colour, dashes
    for (i = 1; i <= n; i++)
        printf "%.1f,%.1f ", x_of(at[place, i]), y_of(count[place, i, column])
    print "\"/>"
    for (i = 1; i <= n; i++)
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(at[place, i]), \
            y_of(count[place, i, column]), colour
    text(right + 2, y_of(count[place, n, column]) + shift, "start", 11, colour, \
        name " " sprintf("%.3g", count[place, n, column]))
}

function draw_panel(place, number, title,    i, tick) {
    left = 40 + (number - 1) * 440
    right = left + 270
    top = 56
    bottom = 270
    text(left, 46, "start", 13, "#222222", title)
    for (tick = 1; tick <= ceiling; tick *= 4) {
        line(left, y_of(tick), right, y_of(tick), "stroke=\"#e4e4e4\"")
        text(left - 6, y_of(tick) + 4, "end", 11, "#777777", tick)
    }
    for (i = 1; i <= n_points[place]; i++)
        text(x_of(at[place, i]), bottom + 16, "middle", 11, "#777777", at[place, i])
    draw_line(place, "messages", "#2f74b5", "", "messages", -2)
    draw_line(place, "packets", "#4d9a5b", "stroke-dasharray=\"1 3\"", "packets", 12)
    draw_line(place, "clocks", "#c7762f", "", "clocks", 4)
    draw_line(place, "root", "#c7762f", "stroke-dasharray=\"6 3\"", "clocks of the root", 4)
}

BEGIN {
    FS = "\t"
    ceiling = 64
}

NR > 1 {
    i = ++n_points[$1]
    at[$1, i] = $2
    count[$1, i, "messages"] = $3
    count[$1, i, "clocks"] = $4
    count[$1, i, "packets"] = $5
    count[$1, i, "root"] = $6
}

END {
    width = 920
    height = 300
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", width, height
    printf " viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height
    print "<title>What a node sends in an iteration, with more and more nodes</title>"
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height
    print "<text x=\"12\" y=\"22\" font-size=\"14\" fill=\"#222222\">What a node sends in an iteration" \
        "<tspan font-size=\"11\" fill=\"#777777\" dx=\"10\">against the number of nodes</tspan></text>"
    draw_panel("host", 1, "through shared memory")
    draw_panel("tcp", 2, "over TCP")
    print "</svg>"
}
