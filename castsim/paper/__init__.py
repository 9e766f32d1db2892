"""The paper's tables once more, from its published measurements: widths (Table 2), intervals (Table 3), forecasts
(Tables 7, 8, 12, 16 and 17), and every printed number beside what the measurements give for it.
"""
